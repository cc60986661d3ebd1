"""``slow_compute``: a rank whose own time in a step is longer than its peers'.

Own time is wall time less waits for peers and for a processor: what a rank computes, and
what it is blocked by on its own (a sleep, a file, a remote call).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from hanglab.analyzer.facts.job_timing import JobTiming
from hanglab.analyzer.facts.launches import hosts_run_ahead
from hanglab.analyzer.facts.sampled_lines import busiest_line, main_line, time_at_own_lines
from hanglab.analyzer.proposal import Proposal, propose
from hanglab.analyzer.strengths import CANDIDATES, CONCLUDED, PROVED, SHOWN, SLOW
from hanglab.analyzer.verdict import Cause, Evidence, Status
from hanglab.analyzer.wording import WAS_BLOCKED, name_line, name_ranks
from hanglab.recorder.case.records import StackFrame
from hanglab.recorder.slowness.section_costs import heaviest_section
from hanglab.recorder.slowness.statistics import beyond_peers
from hanglab.recorder.slowness.thresholds import MAIN_PART, POLLING_FACTOR, SECTION_PART


def slow_compute(timing: JobTiming, named: Collection[int]) -> Iterator[Proposal]:
    window = timing.window
    ranks = [rank for rank in window.times if rank not in named]
    computing = [r for r in ranks if window.computes_more(r) and _is_placed(timing, r)]
    if computing:
        yield _computing(timing, computing)
    blocked = {
        rank: line
        for rank in ranks
        if rank not in computing
        and window.is_blocked(rank)
        and (line := _own_line(timing, rank)) is not None
    }
    if blocked:
        yield _blocked(timing, blocked)
    elif hosts_run_ahead(timing.known):
        slow = {
            rank: line
            for rank in ranks
            if rank not in computing
            and window.is_blocked(rank)
            and (line := _line_of_all(timing, rank)) is not None
        }
        if slow:
            yield _on_slow_device(timing, slow)


def _is_placed(timing: JobTiming, rank: int) -> bool:
    """True if a section, or samples at lines of the rank's own, hold what it computes more.

    Threads of gloo and of autograd that look for work now and then took one of four identical
    ranks 1.7 times as much processor time, at 3 ms a step, on a crowded machine.  Other threads of
    the rank that take as much and more, and the interpreter's lock from it, no line holds.
    """
    excess = timing.window.beyond("work_ns", rank) or 0.0
    if excess >= (POLLING_FACTOR - 1) * (timing.window.usual("work_ns", rank) or excess):
        return True
    if heaviest_section(timing.window.sections, rank, SECTION_PART * excess) is not None:
        return True
    return not timing.known.ranks[rank].lines or _seen(timing, rank) >= MAIN_PART * excess


def _seen(timing: JobTiming, rank: int) -> float:
    """Nanoseconds that samples saw the rank at lines of its own, beyond its peers at theirs.

    Lines at which peers stand together are none of theirs: they may wait there for this rank,
    within a backward pass.
    """
    known, others = timing.known, timing.window.times.keys() - {rank}
    seen = {other: time_at_own_lines(known, other, without=rank) for other in others}
    return beyond_peers({**seen, rank: time_at_own_lines(known, rank)}, rank)


def _own_line(timing: JobTiming, rank: int) -> StackFrame | None:
    """The line that blocks the rank.

    None where it was not seen in code of its own for most of the time, beyond its peers: what
    nobody watches, such as a key that a peer sets or a thread of autograd's that lacks a
    processor, may hold it up.
    """
    longer = _seen(timing, rank) >= MAIN_PART * _own(timing, rank)
    return busiest_line(timing.known, rank) if longer else None


def _line_of_all(timing: JobTiming, rank: int) -> StackFrame | None:
    """The line at which the rank and all its peers were seen most; None if that is not one."""
    lines = {main_line(timing.known, other) for other in timing.window.times}
    return lines.pop() if len(lines) == 1 and rank in timing.window.times else None


def _computing(timing: JobTiming, culprits: list[int]) -> Proposal:
    window = timing.window
    worst = timing.worst(culprits)
    excess = window.beyond("work_ns", worst) or 0.0
    usual = window.usual("work_ns", worst)
    section = heaviest_section(window.sections, worst, SECTION_PART * excess)
    line = busiest_line(timing.known, worst, section)
    # Threads of it may have computed beside each other.  On a crowded machine its peers may have
    # waited for a processor for as long as it computed more, and it is hardly late.
    late_ns = window.lateness[worst].excess_ns
    cost = late_ns if late_ns >= MAIN_PART * excess else excess
    return propose(
        timing.known,
        Cause.SLOW_COMPUTE,
        culprits,
        status=Status.SLOW,
        confidence=min(
            PROVED, SLOW + sum(max(0.0, window.lateness[r].excess_share) for r in culprits)
        ),
        summary=f"{name_ranks(culprits).capitalize()} computed "
        f"{(usual + excess) / max(usual, 1.0):.1f} times as long as its peers"
        + (f", most of it in section {section}," if section else "")
        + (
            " and they wait for it."
            if window.keeps_peers_waiting(worst)
            else " on a machine where ranks wait for processors."
        ),
        evidence=[
            Evidence(
                "progress",
                r,
                f"used {window.ms_per_step(did.work_ns or 0.0):.1f} ms of processor time a step",
            )
            for r, did in sorted(window.times.items())
        ]
        + [timing.lag(r) for r in culprits],
        location=timing.known.ranks[worst].location(line) if line else None,
        effect=timing.effect(cost, section if section else None),
    )


def _blocked(timing: JobTiming, lines: dict[int, StackFrame]) -> Proposal:
    """Ranks that take longer than their peers without computing more: they wait on their own."""
    known, window = timing.known, timing.window
    places = {rank: known.ranks[rank].location(line) for rank, line in lines.items()}
    culprits = sorted(places)
    worst = timing.worst(culprits)
    cost = window.own_excess_ns(worst) or 0.0
    takes, its, it = ("takes", "its", "it") if len(culprits) == 1 else ("take", "their", "them")
    return propose(
        known,
        Cause.SLOW_COMPUTE,
        culprits,
        status=Status.SLOW,
        confidence=min(SHOWN, CANDIDATES + sum(window.share(_own(timing, r)) for r in culprits)),
        summary=f"{name_ranks(culprits).capitalize()} {takes} {window.ms_per_step(cost):.1f} ms a "
        f"step longer than {its} peers, blocked{name_line(places[worst])} rather than computing or "
        f"kept from a processor; the others wait for {it}.",
        evidence=[
            evidence
            for rank in culprits
            for evidence in (
                timing.lag(rank),
                Evidence(
                    "progress",
                    rank,
                    f"{WAS_BLOCKED}{name_line(places[rank])} for "
                    f"{window.ms_per_step(_own(timing, rank)):.1f} ms a step more than its peers",
                ),
            )
        ],
        location=places[worst],
        effect=timing.effect(cost),
    )


def _on_slow_device(timing: JobTiming, lines: dict[int, StackFrame]) -> Proposal:
    """Ranks that take longer than their peers while all hosts wait for their devices."""
    known, window = timing.known, timing.window
    culprits = sorted(lines)
    worst = timing.worst(culprits)
    cost = window.own_excess_ns(worst) or 0.0
    place = known.ranks[worst].location(lines[worst])
    return propose(
        known,
        Cause.SLOW_COMPUTE,
        culprits,
        status=Status.SLOW,
        confidence=min(
            CONCLUDED, CANDIDATES + sum(window.share(_own(timing, r)) for r in culprits)
        ),
        summary=f"{name_ranks(culprits).capitalize()} came {window.ms_per_step(cost):.1f} ms a "
        "step later than the others, and not by its host, which neither computed more nor was kept "
        f"from a processor. All hosts wait for their devices{name_line(place)}, and this one's "
        "takes longer.",
        evidence=[timing.lag(rank) for rank in culprits],
        location=place,
        effect=timing.effect(cost),
    )


def _own(timing: JobTiming, rank: int) -> float:
    return timing.window.own_excess_ns(rank) or 0.0
