"""What the matched operations alone prove: the findings of the picture, placed in the order.

In a Case they are sharpened by what a dump cannot know: the line at which a
culprit stands, and whether a rank that others wait for is explained by its
process, its stack or its end.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hanglab.analyzer.advice import advice_for
from hanglab.analyzer.causes.network.links import partition
from hanglab.analyzer.causes.software.absent_ranks import candidates
from hanglab.analyzer.causes.synchronization.divergence import candidates_of
from hanglab.analyzer.causes.synchronization.findings import synchronization_findings
from hanglab.analyzer.causes.synchronization.split_mismatch import split_lists
from hanglab.analyzer.facts.collateral_exits import troubles
from hanglab.analyzer.facts.evidence import Evidence as Known
from hanglab.analyzer.facts.failures import troubles_of
from hanglab.analyzer.facts.loops import left_loops, steps_compared
from hanglab.analyzer.graph.wait_for_graph import Sink
from hanglab.analyzer.proposal import Order, Proposal
from hanglab.analyzer.verdict import Cause, Evidence, Finding, Location, Status

_CYCLES = frozenset({Cause.GROUP_ORDER, Cause.P2P_DEADLOCK, Cause.P2P_UNMATCHED})
_OUTSIDE = frozenset({Cause.MISSING_RANK})
#: Differences after which a rank may be found to have left its peers' loop.
_MAY_BE_UNEVEN = frozenset({Cause.COLLECTIVE_MISMATCH, Cause.SKIPPED_COLLECTIVE})


def synchronization(known: Known) -> Iterator[Proposal]:
    for finding in synchronization_findings(known.picture):
        cause = finding.cause
        if cause is None:
            continue
        if cause is Cause.SPLIT_MISMATCH and next(split_lists(known), None) is not None:
            continue  # the lists of a Case say more than the sizes of a dump
        if cause in _OUTSIDE:
            if known.case and not _still_unexplained(known, finding):
                continue
            order = Order.OUTSIDE
        elif cause in _CYCLES:
            order = Order.CYCLE
        else:
            order = Order.DIVERGENCE
        if known.case:
            finding = _sharpen(known, finding)
        yield Proposal(finding=finding, order=order, excludes=_failed_by_it(known, finding))
    if known.case:
        yield from _told_by_loops(known)


def _told_by_loops(known: Known) -> Iterator[Proposal]:
    """Differences that missing voices leave undecided, where one rank alone has left a loop."""
    for divergence, finding in candidates_of(known.picture):
        if finding.cause not in _MAY_BE_UNEVEN:
            continue
        ranks = sorted({*finding.culprits, *divergence.silent} & known.ranks.keys())
        gone = [rank for rank in ranks if left_loops(known, rank)]
        if len(gone) == 1 and gone[0] in finding.culprits:
            told = _past_the_loop(known, finding, gone[0])
            if told is not finding:
                yield Proposal(
                    finding=told, order=Order.DIVERGENCE, excludes=_failed_by_it(known, told)
                )


def _still_unexplained(known: Known, finding: Finding) -> bool:
    """Whether a rank that others wait for is not looked at by its stack anyway."""
    looked_at = set(candidates(known))
    for rank in finding.culprits:
        view = known.ranks.get(rank)
        if rank in looked_at and view is not None and view.rank_stacks:
            return False
        trouble = troubles_of(view) if view is not None else None
        if trouble is not None and trouble.consequence:
            # Its communication failed: it was inside an operation that nobody recorded.
            return False
        if view is not None and view.ended is None and not known.stands_outside(rank):
            # Its stack contradicts its dump: it does not stand outside.
            return False
        sink = known.sink(rank)
        if sink is not None and sink.stopped_device:
            if any(partition(known)) or _runs_on_the_host(known, sink):
                # It is inside, and what it waits for gets lost on its way: not it has stopped.
                return False
    # Whoever was ended from outside need not have been late.
    return known.stuck or any(not trouble.cleared for trouble in troubles(known))


def _runs_on_the_host(known: Known, sink: Sink) -> bool:
    """Whether nothing of a rank can have stopped but its process, and that runs."""
    view = known.ranks.get(sink.rank)
    if view is None or view.ended is not None or view.state not in ("R", "S"):
        return False
    backends = {group.backend for group in view.groups if group.id == sink.awaited.group.name}
    return bool(backends) and all(b.rpartition(":")[2] == "gloo" and "," not in b for b in backends)


def _failed_by_it(known: Known, finding: Finding) -> frozenset[int]:
    """Ranks that failed in the operation which the finding is about, or for want of it."""
    return frozenset(r for r, v in known.ranks.items() if v.failed)


def _sharpen(known: Known, finding: Finding) -> Finding:
    status = Status.HUNG
    if not known.stuck and any(v.failed for v in known.ranks.values()):
        status = Status.FAILED
    finding = msgspec.structs.replace(finding, status=status)
    first = finding.culprits[0] if finding.culprits else None
    if first is None or first not in known.ranks:
        return finding
    view = known.ranks[first]
    called = finding.location
    frame = view.calling_frame(called) if called is not None else view.standing.user
    if view.ended is None and frame is not None:
        finding = msgspec.structs.replace(finding, location=view.location(frame))
    if finding.cause in _MAY_BE_UNEVEN:
        gone = [r for r in finding.culprits if r in known.ranks and left_loops(known, r)]
        if len(gone) == 1:
            finding = _past_the_loop(known, finding, gone[0])
    return finding


def _past_the_loop(known: Known, finding: Finding, rank: int) -> Finding:
    """The root of a difference, where the rank has left the loop that its peers are in."""
    loops = left_loops(known, rank)
    compared = steps_compared(known, rank, loops) if loops else None
    if compared is None or compared[0] > 0:
        return finding
    fewer = compared[0] < 0
    cause = Cause.UNEVEN_INPUTS if fewer else Cause.SKIPPED_COLLECTIVE
    done = "after fewer steps" if fewer else "after as many steps but fewer operations"
    return msgspec.structs.replace(
        finding,
        cause=cause,
        category=cause.category,
        culprits=[rank],
        victims=sorted({*finding.victims, *finding.culprits} - {rank}),
        location=_standing_at(known, rank) or finding.location,
        confidence=max(finding.confidence, 0.8),
        advice=advice_for(cause),
        summary=f"Rank {rank} has left the loop that its peers are in, {done} ({compared[1]}); "
        "its next operation meets the wrong one of theirs.",
        evidence=[
            Evidence("stack", rank, f"behind its peers' loop; {compared[1]}"),
            *finding.evidence,
        ],
    )


def _standing_at(known: Known, rank: int) -> Location | None:
    view = known.ranks[rank]
    frame = next(iter(view.code.user_frames(view.program_frames)), None)
    return view.location(frame) if frame is not None else None
