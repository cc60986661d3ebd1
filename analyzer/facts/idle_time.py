"""Rests out of all proportion: a look at what may well be a hang, before the threshold has passed.

Who asks or interrupts after a while comes earlier than the recorder, which waits for its
threshold.  That the job moves is then no more proved than that it hangs.
"""

from __future__ import annotations

from dataclasses import dataclass

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.thresholds import AWAITED_IDLE_S, AWAITED_PAUSES, IDLE_S, PAUSES

#: Captures that the time without movement did not bring about.
_EARLY = frozenset({"deadline", "request", "interrupt"})


@dataclass(frozen=True)
class IdleTime:
    """Time for which nothing had moved, and the longest pause before, in seconds."""

    seconds: float
    pause_s: float
    #: Those at rest that others wait for.
    awaited: tuple[int, ...] = ()
    #: Whether all ranks rest.
    everybody: bool = True


def captured_early(facts: CaseFacts) -> bool:
    """True if the job was captured before its ranks had rested for as long as a hang takes."""
    trigger = facts.job.trigger if facts.job else None
    return trigger is not None and trigger.kind in _EARLY


def moved_recently(view: RankView) -> bool:
    """True if the rank was seen to move so short a while ago that it moves.

    Times in which the recorder could not look count, too: they are no movement.
    """
    movement = view.movement
    return movement is not None and max(movement.quiet_s, movement.rested_s) < AWAITED_IDLE_S


def is_unusually_idle(view: RankView) -> bool:
    """True if a rank that others wait for has not moved for longer than it is used to."""
    movement = view.movement
    return movement is not None and movement.quiet_s >= max(
        AWAITED_IDLE_S, AWAITED_PAUSES * movement.longest_pause_s
    )


def unusual_idle_time(facts: CaseFacts) -> IdleTime | None:
    """The rest of all ranks, or of those that others wait for; None unless it is out of all
    proportion.
    """
    awaited = _awaited(facts)
    movements = [view.movement for view in facts.ranks.values() if view.ended is None]
    idle = min((m.quiet_s if m is not None else 0.0 for m in movements), default=0.0)
    pause = max((m.longest_pause_s for m in movements if m is not None), default=0.0)
    if idle >= max(IDLE_S, PAUSES * pause) or (
        awaited and idle >= max(AWAITED_IDLE_S, AWAITED_PAUSES * pause)
    ):
        return IdleTime(idle, pause, awaited)
    mine = [m for rank in awaited if (m := facts.ranks[rank].movement) is not None]
    if not mine:
        return None
    return IdleTime(
        min(m.quiet_s for m in mine), max(m.longest_pause_s for m in mine), awaited, everybody=False
    )


def ranks_that_wait_for_long(facts: CaseFacts) -> list[int]:
    """Ranks that wait in an operation for as long as a hang takes, and out of all proportion."""
    waiting = {wait.call.rank for wait in facts.graph.waits if wait.on}
    return [
        rank
        for rank in sorted(waiting & facts.ranks.keys())
        if (movement := facts.ranks[rank].movement) is not None
        and movement.quiet_s >= max(facts.hang_after_s, PAUSES * movement.longest_pause_s)
    ]


def _awaited(facts: CaseFacts) -> tuple[int, ...]:
    if not captured_early(facts):
        return ()
    waited_for = {s.rank for s in facts.graph.sinks if s.outside or s.unknown}
    return tuple(
        rank
        for rank, view in sorted(facts.ranks.items())
        if rank in waited_for and view.ended is None and is_unusually_idle(view)
    )
