"""Judges findings on a random run: right, inconclusive or wrong, and whether more could be known.

The oracle sees the whole run, which the analyzer does not: which operations
really run on each rank, and what each of them lacks.  From that and from what
was lost it says whether the culprit can be told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from hanglab.analyzer.program.program import Action
from hanglab.analyzer.program.random_runs import RandomRun
from hanglab.analyzer.program.simulation import Issued, Run
from hanglab.analyzer.verdict import Finding

#: A finding below this names candidates and says so.
SURE = 0.6

#: (group, sequence number), or (group, source, destination) of a send or receive.
_Place = tuple[int, ...]


class FindingsJudgement(str, Enum):
    RIGHT = "right"
    #: Nothing found, or candidates only, the culprit among them.
    INCONCLUSIVE = "inconclusive"
    WRONG = "wrong"


def judge(drawn: RandomRun, findings: Sequence[Finding]) -> FindingsJudgement:
    if drawn.fault is None:
        return FindingsJudgement.WRONG if findings else FindingsJudgement.RIGHT
    truths = [set(drawn.fault.culprits)]
    ring = p2p_ring(drawn.run)
    if ring:
        # Whatever led to it, a ring of sends and receives is what can be seen.
        truths.append(ring)
    sure = {rank for f in findings if f.confidence > SURE for rank in f.culprits}
    if sure:
        return FindingsJudgement.RIGHT if sure in truths else FindingsJudgement.WRONG
    named = {rank for finding in findings for rank in finding.culprits}
    if named and all(truth.isdisjoint(named) for truth in truths):
        return FindingsJudgement.WRONG
    return FindingsJudgement.INCONCLUSIVE


def decidable(drawn: RandomRun) -> bool:
    """True if what survived of the evidence must suffice.

    Says True only where that is beyond doubt.
    """
    fault, run = drawn.fault, drawn.run
    if fault is None:
        return True
    if drawn.style.active_only or drawn.style.version == "2.1" or not _rings_suffice(drawn):
        return False
    if drawn.missing & _concerned(run):
        return False
    if fault.kind == "stop":
        return True
    if fault.kind == "device_stop":
        at = fault.device_stops[min(fault.culprits)]
        action = fault.program.actions[min(fault.culprits)][at]
        return len(run.program.groups[action.group].members) > 2
    if run.backend == "nccl" and fault.kind == "root":
        return False
    (culprit, *_) = sorted(fault.culprits)
    if _outvoted(run, culprit):
        return True
    waits = _truth(run)
    if any(action.p2p for action in _running(run)):
        return fault.kind == "p2p_deadlock" and p2p_ring(run) == set(fault.culprits)
    keys = [rank for rank in waits if not _cyclic(waits, rank)]
    return bool(waits) and _cyclic(waits, None) and keys == [culprit]


def _rings_suffice(drawn: RandomRun) -> bool:
    """True if each ring still shows every group that matters, if the rank ever used it.

    What is unfinished is in it anyway.
    """
    run = drawn.run
    concerned = {issued.action.group for _, issued in _unfinished(run)}
    for rank, ring in drawn.rings.items():
        issued = run.ranks[rank].issued
        if ring is None or rank in drawn.missing or ring >= len(issued):
            continue
        shown = [one for one in issued if run.backend == "nccl" or not one.action.p2p][-ring:]
        # Ends of batches take places in the ring, too.
        shown = shown[len(shown) // 3 :] if run.backend == "nccl" else shown
        seen = {one.action.group for one in shown if not one.action.p2p}
        used = {one.action.group for one in issued}
        if concerned & used - seen:
            return False
    return True


def _unfinished(run: Run) -> Iterable[tuple[int, Issued]]:
    for rank, state in enumerate(run.ranks):
        for issued in state.issued:
            if not issued.done:
                yield rank, issued


def _concerned(run: Run) -> set[int]:
    """All members of groups in which something is unfinished."""
    concerned: set[int] = set()
    for _, issued in _unfinished(run):
        concerned.update(run.program.groups[issued.action.group].members)
    return concerned


def _running(run: Run) -> list[Action]:
    return [issued.action for _, issued in _unfinished(run) if issued.running]


def _outvoted(run: Run, culprit: int) -> bool:
    """True if two or more peers agree on another call than the culprit's under one number."""
    calls: dict[tuple[int, int], dict[int, Action]] = {}
    for rank, state in enumerate(run.ranks):
        for issued in state.issued:
            if not issued.action.p2p:
                calls.setdefault((issued.action.group, issued.seq), {})[rank] = issued.action
    for (group, _), members in sorted(calls.items()):
        mine = members.get(culprit)
        if mine is None:
            continue
        size = len(run.program.groups[group].members)
        shapes = {rank: _shape(action, run.backend, size) for rank, action in members.items()}
        others = [shape for rank, shape in shapes.items() if rank != culprit]
        if len(set(others)) == 1 and others[0] != shapes[culprit]:
            return len(others) > size / 2
    return False


def _shape(action: Action, backend: str, members: int) -> tuple[object, ...]:
    """The part of a call that a dump shows."""
    op = action.op
    size = None if op in ("all_to_all", "barrier") else action.numel
    if backend == "gloo" and op == "reduce_scatter":
        op, size = "all_reduce", action.numel * members
    dtype = None if op == "barrier" else action.dtype
    return op, size, dtype, action.root if backend == "gloo" else None


def _truth(run: Run) -> dict[int, set[int]]:
    """Rank -> the ranks that have not begun what it runs."""
    begun: dict[_Place, set[int]] = {}
    for rank, state in enumerate(run.ranks):
        for issued in state.issued:
            if issued.running and not issued.action.p2p:
                begun.setdefault((issued.action.group, issued.seq), set()).add(rank)
    waits: dict[int, set[int]] = {}
    for rank, issued in _unfinished(run):
        if not issued.running:
            continue
        action = issued.action
        members = run.program.groups[action.group].members
        mine = waits.setdefault(rank, set())
        if action.p2p:
            if action.peer is not None:
                mine.add(members[action.peer])
        else:
            mine.update(set(members) - begun[action.group, issued.seq])
    return waits


def _cyclic(waits: dict[int, set[int]], without: int | None) -> bool:
    left = {rank: {t for t in on if t != without} for rank, on in waits.items() if rank != without}
    while True:
        free = [rank for rank, on in left.items() if not any(target in left for target in on)]
        if not free:
            return bool(left)
        for rank in free:
            del left[rank]


def p2p_ring(run: Run) -> set[int]:
    """Ranks that wait for each other in sends and receives alone; empty if there are none."""
    waits: dict[int, set[int]] = {}
    blocked_elsewhere: set[int] = set()
    for rank, issued in _unfinished(run):
        if not issued.running:
            continue
        action = issued.action
        if action.p2p and action.peer is not None:
            members = run.program.groups[action.group].members
            waits.setdefault(rank, set()).add(members[action.peer])
        else:
            blocked_elsewhere.add(rank)
    ring = {rank: on for rank, on in waits.items() if rank not in blocked_elsewhere}
    while True:
        free = [rank for rank, on in ring.items() if not on & set(ring)]
        if not free:
            break
        for rank in free:
            del ring[rank]
    # Who is waited for by nobody in the ring only hangs on to it.
    while True:
        loose = [rank for rank in ring if not any(rank in on for on in ring.values())]
        if not loose:
            return set(ring)
        for rank in loose:
            del ring[rank]
