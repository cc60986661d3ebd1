"""Rests out of all proportion: a look at what may well be a hang, before the threshold has passed.

Who asks or interrupts after a while comes earlier than the recorder, which waits for its
threshold.  That the job moves is then no more proved than that it hangs.
"""

from __future__ import annotations

from dataclasses import dataclass

from hanglab.analyzer.facts.evidence import Evidence as Known
from hanglab.analyzer.facts.evidence import RankView
from hanglab.analyzer.facts.interpreter_lock import PAUSES

#: A rest of all ranks that is this long, in seconds, and longer than any before by PAUSES.
_LONG_S = 5.0
#: The same of a rank that others wait for in an operation: they rest because it does.
_AWAITED_S = 2.0
_AWAITED_PAUSES = 2
#: Captures that the time without movement did not bring about.
_EARLY = frozenset({"deadline", "request", "interrupt"})


@dataclass(frozen=True)
class Rest:
    """How long nothing had moved, and the longest pause before, in seconds."""

    seconds: float
    pause_s: float
    #: Those at rest that others wait for.
    awaited: tuple[int, ...] = ()
    #: Whether all ranks rest.
    everybody: bool = True


def looked_at_early(known: Known) -> bool:
    """Whether the job was captured before its ranks had rested for as long as a hang takes."""
    trigger = known.job.trigger if known.job else None
    return trigger is not None and trigger.kind in _EARLY


def moved_lately(view: RankView) -> bool:
    """Whether the rank was seen to move so short a while ago that it moves.

    Times in which the recorder could not look count, too: they are no movement.
    """
    movement = view.movement
    return movement is not None and max(movement.quiet_s, movement.rested_s) < _AWAITED_S


def rests(view: RankView) -> bool:
    """Whether a rank that others wait for has not moved for longer than it is used to."""
    movement = view.movement
    return movement is not None and movement.quiet_s >= max(
        _AWAITED_S, _AWAITED_PAUSES * movement.longest_pause_s
    )


def long_rest(known: Known) -> Rest | None:
    """The rest of all ranks, or of those that others wait for; None unless it is out of all
    proportion.
    """
    awaited = _awaited(known)
    movements = [view.movement for view in known.ranks.values() if view.ended is None]
    rest = min((m.quiet_s if m is not None else 0.0 for m in movements), default=0.0)
    pause = max((m.longest_pause_s for m in movements if m is not None), default=0.0)
    if rest >= max(_LONG_S, PAUSES * pause) or (
        awaited and rest >= max(_AWAITED_S, _AWAITED_PAUSES * pause)
    ):
        return Rest(rest, pause, awaited)
    mine = [m for rank in awaited if (m := known.ranks[rank].movement) is not None]
    if not mine:
        return None
    return Rest(
        min(m.quiet_s for m in mine), max(m.longest_pause_s for m in mine), awaited, everybody=False
    )


def _awaited(known: Known) -> tuple[int, ...]:
    if not looked_at_early(known):
        return ()
    waited_for = {s.rank for s in known.picture.sinks if s.outside or s.unknown}
    return tuple(
        rank
        for rank, view in sorted(known.ranks.items())
        if rank in waited_for and view.ended is None and rests(view)
    )
