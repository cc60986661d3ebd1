"""Evidence on speed of a job in which no rank was found slow: how well that could be seen."""

from __future__ import annotations

from dataclasses import dataclass, field

from hanglab.analyzer.facts.arrival_lag import arrivals, message_part
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.job_timing import JobTiming
from hanglab.analyzer.verdict import Evidence
from hanglab.analyzer.wording import Need, name_needs
from hanglab.recorder.slowness.job_window import JobWindow
from hanglab.recorder.slowness.thresholds import (
    CERTAIN,
    CROWDED_SHARE,
    FEWEST_IN_JOB,
    SHORTEST_JOB_NS,
    STALLED_SHARE,
    STRETCH_FLOOR_MS,
    TURNS_SHARE,
)

#: What would tell why a rank is late of which neither samples nor the kernel tell.
_PROFILED = "a profile of {} where it is late"
_RUN_OF_ITS_OWN = "a run in which each rank has a processor of its own, profiled where it is late"

#: Words for a stage of a pipeline that is none of the others' kind.
_ALONE = "was compared with nobody: no other rank has a part like its own in what they exchange"


@dataclass
class SpeedEvidence:
    """Evidence on speed, and what is missing from it."""

    evidence: list[Evidence]
    #: Ranks of a job long enough to be judged of which a slowness would not have been seen.
    unseen: list[int] = field(default_factory=list)
    would_decide: list[str] = field(default_factory=list)
    #: Share of the time that ranks wait for each other by turns, if that is much.
    in_turns: float | None = None


def speed_evidence(known: CaseFacts) -> SpeedEvidence:
    """Evidence that ranks were compared, and how closely; or why they were not."""
    if not known.case:
        return _not_compared("dumps alone hold neither processor time nor waits for it")
    if len(known.ranks) < 2:
        return _not_compared("there are no two ranks to compare")
    found = arrivals(known)
    if found is None:
        return _not_compared("no two operations are on record of all ranks of a group")
    timing = JobTiming.of(known, found)
    window = timing.window
    if not window.long_enough:
        return _not_compared(
            f"{window.operations} operations in {window.span_ns / 1e9:.1f} s are too few; "
            f"comparing takes {FEWEST_IN_JOB} or more, over {SHORTEST_JOB_NS / 1e9:g} s or longer"
        )
    parts = {rank: message_part(view) for rank, view in known.ranks.items()}
    alone = [
        rank
        for rank in sorted(known.ranks.keys() - window.times.keys())
        if rank in known.dumps and list(parts.values()).count(parts[rank]) == 1
    ]
    missing = {
        rank: file
        for rank in sorted(known.ranks.keys() - {*alone})
        if (file := _missing_file(timing, rank)) is not None
    }
    untold = [
        rank
        for rank in sorted(window.times.keys() - missing.keys())
        if window.is_late(rank, CERTAIN, STALLED_SHARE)
        # Waits for a processor that it had and its peers did not are accounted for.
        and window.share(window.own_excess_ns(rank) or 0.0) >= STALLED_SHARE
    ]
    some_are_left = len(window.lateness) > len(missing.keys() & window.lateness.keys()) + 1
    return SpeedEvidence(
        ([_compared(timing, set(missing))] if some_are_left else [])
        + [
            Evidence(
                "progress",
                rank,
                f"was not seen to be slow or quick: its {file} is missing",
            )
            for rank, file in missing.items()
        ]
        + [Evidence("flight_recorder", rank, _ALONE) for rank in alone]
        + [Evidence("flight_recorder", rank, _unexplained(window, rank)) for rank in untold],
        unseen=sorted([*missing, *alone, *untold]),
        would_decide=name_needs(
            [
                *(Need(f"{{}}'s {file}", f"the {file} of {{}}", r) for r, file in missing.items()),
                *(
                    Need(_RUN_OF_ITS_OWN)
                    if _is_crowded(window, rank)
                    else Need(_PROFILED.format(f"rank {rank}"))
                    for rank in untold[:1]
                ),
            ]
        ),
        in_turns=_in_turns(window),
    )


def _in_turns(window: JobWindow) -> float | None:
    """Share of the time that ranks lose to each other though none is late for long.

    What they waited for a processor is no work of theirs, and left out.
    """
    lost = window.lost_in_turns
    waited = [window.times[rank].waited_ns if rank in window.times else None for rank in lost]
    if None in waited:
        return None
    own = sum(lost.values()) - sum(one for one in waited if one is not None)
    much = window.share(own) >= TURNS_SHARE and window.ms_per_step(own) >= STRETCH_FLOOR_MS
    return window.share(own) if much else None


def _unexplained(window: JobWindow, rank: int) -> str:
    """Words for a rank that came late again and again, for a reason that nothing accounts for."""
    late = window.lateness[rank]
    lost = f"{late.late_share:.0%}"
    words = f"its peers lost {lost} of the time to it, and nothing recorded tells why"
    if not _is_crowded(window, rank):
        return words
    usual = window.share(window.usual("waited_ns", rank))
    return f"{words}: its peers' main threads wait for a processor {usual:.0%} of the time"


def _is_crowded(window: JobWindow, rank: int) -> bool:
    """True if a rank's peers wait for a processor, so that chance may decide who comes late."""
    known = window.times[rank].waited_ns is not None
    return known and window.share(window.usual("waited_ns", rank)) >= CROWDED_SHARE


def _missing_file(timing: JobTiming, rank: int) -> str | None:
    """Words for what of the rank's evidence on speed is missing; None where all is there."""
    if rank not in timing.window.times:
        return "dump"
    return None if timing.window.times[rank].cpu_ns is not None else "processor time"


def _compared(timing: JobTiming, without: set[int]) -> Evidence:
    window = timing.window
    ranks = [rank for rank in window.lateness if rank not in without]
    latest = max(ranks, key=lambda rank: window.lateness[rank].excess_ns)
    excess, lost = max(0.0, window.lateness[latest].excess_share), window.lateness[latest].share
    waited = window.beyond("waited_ns", latest)
    if waited is None:
        queue = "what it waited for a processor is not known"
    else:
        queue = f"it waited for a processor {window.share(max(0.0, waited)):.0%} of it more"
    return Evidence(
        "flight_recorder",
        None,
        f"speed: {len(ranks)} ranks were compared over {window.operations} operations in "
        f"{window.span_ns / 1e9:.1f} s; rank {latest}'s own time exceeds its peers' most, by "
        f"{excess:.1%} of the time, its longest stretch left out; they lost {lost:.1%} to it by "
        f"when it came, and {queue}",
    )


def _not_compared(why: str) -> SpeedEvidence:
    return SpeedEvidence([Evidence("flight_recorder", None, f"speed was not compared: {why}")])
