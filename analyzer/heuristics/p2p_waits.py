"""Rings of sends and receives, by what the Python boundary knows of them: tags and waits.

A dump has no tags, and on gloo no point-to-point at all.  The boundary says in
which send or receive a rank is held, and which ones it has posted; a message
with another tag is no other half.
"""

from __future__ import annotations

from collections.abc import Iterator

from hanglab.analyzer.communication.picture import Group
from hanglab.analyzer.evidence.model import Evidence as Known
from hanglab.analyzer.evidence.model import RankView
from hanglab.analyzer.heuristics.proposal import Order, Proposal, name_line, name_ranks, propose
from hanglab.analyzer.verdict import Cause, CollectiveRef, Evidence, Location, Status
from hanglab.recorder.case.boundary import Operation

_SENDS = frozenset({"send"})
_RECEIVES = frozenset({"recv", "recv_anysource"})


def _is_p2p(operation: Operation) -> bool:
    return operation.method in _SENDS or operation.method in _RECEIVES


def _open(operation: Operation) -> bool:
    return _is_p2p(operation) and not operation.completed and not operation.failed


def held_in(view: RankView) -> Operation | None:
    """The send or receive that the rank waits in right now."""
    if view.progress is None or view.ended is not None:
        return None
    for operation in reversed(view.progress.operations):
        waits = operation.returned_ns is None or (
            operation.wait_entered_ns is not None and operation.wait_returned_ns is None
        )
        if waits:
            return operation if _is_p2p(operation) else None
    return None


def _peer(operation: Operation, groups: dict[str, Group]) -> int | None:
    group = groups.get(operation.group)
    place = operation.peer
    if group is None or place is None or not 0 <= place < len(group.members):
        return None
    return group.members[place]


def _other_half(
    rank: int, held: Operation, peer: RankView, groups: dict[str, Group]
) -> Operation | None:
    """An open operation of the peer that would meet ``held``."""
    wanted = _RECEIVES if held.method in _SENDS else _SENDS
    for operation in peer.progress.operations if peer.progress else []:
        if (
            _open(operation)
            and operation.method in wanted
            and operation.group == held.group
            and (operation.tag == held.tag or operation.tag is None or held.tag is None)
            and (operation.peer == -1 or _peer(operation, groups) == rank)
        ):
            return operation
    return None


def _ring(waits: dict[int, int]) -> list[int]:
    """Ranks of the first ring that following ``waits`` closes; [] without one."""
    for start in sorted(waits):
        path: list[int] = []
        at = start
        while at in waits and at not in path:
            path.append(at)
            at = waits[at]
        if at in path:
            return path[path.index(at) :]
    return []


def _never_before(view: RankView, held: Operation) -> bool:
    """Whether the rank has used other channels, again and again, but never this one."""
    operations = view.progress.operations if view.progress else []
    earlier = [o for o in operations if _is_p2p(o) and o.index < held.index and o.completed]
    same = [
        o
        for o in earlier
        if (o.method, o.group, o.peer, o.tag) == (held.method, held.group, held.peer, held.tag)
    ]
    return len(earlier) >= 4 and not same


def p2p_waits(known: Known) -> Iterator[Proposal]:
    """``p2p_deadlock`` of a ring, or ``p2p_unmatched`` where one of it left its own pattern."""
    if not known.stuck or known.picture.cycles or known.picture.unmatched:
        return
    groups = {group.name: group for group in known.picture.groups}
    held = {r: o for r, v in known.ranks.items() if (o := held_in(v)) is not None}
    waits: dict[int, int] = {}
    for rank, operation in held.items():
        peer = _peer(operation, groups)
        if peer is None or peer not in held:
            continue
        if _other_half(rank, operation, known.ranks[peer], groups) is None:
            waits[rank] = peer
    ring = _ring(waits)
    if len(ring) < 2:
        return
    strayed = [r for r in ring if _never_before(known.ranks[r], held[r])]
    culprits = strayed if len(strayed) == 1 else ring
    # Two that wait for each other are a deadlock, whoever strayed; in a longer ring a
    # message that was sent elsewhere is missed by somebody else.
    alone = len(strayed) == 1 and len(ring) > 2
    first = held[culprits[0]]
    group = groups[first.group]
    words = "; ".join(
        f"rank {r} in {held[r].method} {'to' if held[r].method in _SENDS else 'from'} rank "
        f"{waits[r]}, tag {held[r].tag}"
        for r in ring
    )
    yield propose(
        known,
        Order.CYCLE,
        Cause.P2P_UNMATCHED if alone else Cause.P2P_DEADLOCK,
        culprits,
        status=Status.HUNG,
        confidence=0.85 if alone else 0.95,
        summary=(
            f"Rank {culprits[0]} is in a {first.method} that nobody answers and that it never "
            f"issued before: {words}."
            if alone
            else f"{name_ranks(ring).capitalize()} wait for each other: {words}."
        ),
        evidence=[
            Evidence("boundary", r, f"{held[r].method}{name_line(_line(r, held[r]))}") for r in ring
        ],
        location=_line(culprits[0], first),
        collective=CollectiveRef(
            group=group.description or group.name,
            group_id=group.name,
            ranks=list(group.members),
            seq=None,
            op=first.method,
        ),
        excludes=ring,
    )


def _line(rank: int, operation: Operation) -> Location | None:
    if not operation.file:
        return None
    return Location(
        file=operation.file, line=operation.line, function=operation.function, rank=rank
    )
