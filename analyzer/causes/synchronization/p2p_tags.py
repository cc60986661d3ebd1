"""Sends and receives that miss each other, by what the Python boundary knows: tags and waits.

A dump has no tags, and on gloo no point-to-point at all.  The boundary says in
which send or receive a rank is held, and which ones it has posted; a message
with another tag, or over another group, is no other half.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from hanglab.analyzer.causes.thresholds import USUAL_CHANNEL
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.matching.calls import ProcessGroup
from hanglab.analyzer.proposal import Order, Proposal, detector, propose
from hanglab.analyzer.verdict import Cause, CollectiveRef, Evidence, Location, Status
from hanglab.analyzer.wording import name_line, name_ranks
from hanglab.recorder.case.progress_records import OperationCall

_SENDS = frozenset({"send"})
_RECEIVES = frozenset({"recv", "recv_anysource"})


def _is_p2p(operation: OperationCall) -> bool:
    return operation.method in _SENDS or operation.method in _RECEIVES


def _open(operation: OperationCall) -> bool:
    return _is_p2p(operation) and not operation.completed and not operation.failed


def held_in(view: RankView) -> OperationCall | None:
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


def _peer(operation: OperationCall, groups: dict[str, ProcessGroup]) -> int | None:
    group = groups.get(operation.group)
    place = operation.peer
    if group is None or place is None or not 0 <= place < len(group.members):
        return None
    return group.members[place]


def _other_half(
    rank: int, held: OperationCall, peer: RankView, groups: dict[str, ProcessGroup]
) -> OperationCall | None:
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


@dataclass(frozen=True)
class _MismatchedPair:
    """Two halves that would meet but for a tag or a group: rank -> its operation."""

    halves: dict[int, OperationCall]
    #: Both ranks are held in their halves.
    mutual: bool


def _find_mismatch(
    facts: CaseFacts, held: dict[int, OperationCall], groups: dict[str, ProcessGroup]
) -> _MismatchedPair | None:
    """A pair of ranks whose halves fit nothing else; one in which both are held comes first."""
    found: list[_MismatchedPair] = []
    for rank, mine in sorted(held.items()):
        peer = _peer(mine, groups)
        view = facts.ranks.get(peer) if peer is not None else None
        if peer is None or view is None or view.progress is None or view.ended is not None:
            continue
        if _other_half(rank, mine, view, groups) is not None:
            continue
        wanted = _RECEIVES if mine.method in _SENDS else _SENDS
        for theirs in view.progress.operations:
            if not _open(theirs) or theirs.method not in wanted or _peer(theirs, groups) != rank:
                continue
            if _other_half(peer, theirs, facts.ranks[rank], groups) is not None:
                continue
            mutual = held.get(peer) is theirs
            if mutual or (
                not _met(peer, theirs, rank, facts, groups) and _waits_for(facts, peer, rank)
            ):
                found.append(_MismatchedPair({rank: mine, peer: theirs}, mutual))
    return next((one for one in found if one.mutual), found[0] if found else None)


def _met(
    rank: int, posted: OperationCall, peer: int, facts: CaseFacts, groups: dict[str, ProcessGroup]
) -> bool:
    """True if a half that its rank never waited for may have met its other half all the same.

    Nobody marks such an operation as finished.
    """
    mine, theirs = facts.ranks[rank].progress, facts.ranks[peer].progress
    if mine is None or theirs is None:
        return True
    if any(p.operations_total > len(p.operations) for p in (mine, theirs)):
        return True
    started = sum(
        1
        for o in mine.operations
        if (o.method, o.group, o.peer, o.tag)
        == (posted.method, posted.group, posted.peer, posted.tag)
        and o.index <= posted.index
        and not o.failed
    )
    wanted = _RECEIVES if posted.method in _SENDS else _SENDS
    finished = sum(
        1
        for o in theirs.operations
        if o.method in wanted
        and o.completed
        and o.group == posted.group
        and o.tag == posted.tag
        and (o.peer == -1 or _peer(o, groups) == rank)
    )
    return finished >= started


def _waits_for(facts: CaseFacts, rank: int, other: int) -> bool:
    """True if ``rank`` waits, directly or not, for ``other``."""
    on: dict[int, set[int]] = {}
    for wait in facts.graph.waits:
        on.setdefault(wait.call.rank, set()).update(wait.on)
    todo, seen = [rank], set[int]()
    while todo:
        for following in on.get(todo.pop(), set()) - seen:
            seen.add(following)
            todo.append(following)
    return other in seen


def _mismatch_proposal(
    facts: CaseFacts, mismatch: _MismatchedPair, groups: dict[str, ProcessGroup]
) -> Proposal:
    halves = mismatch.halves
    off_channel = [r for r, o in halves.items() if _never_before(facts.ranks[r], o)]
    culprits = sorted(off_channel if len(off_channel) == 1 else halves)
    first = halves[culprits[0]]
    words = "; ".join(f"rank {r} in {_describe(o, groups)}" for r, o in sorted(halves.items()))
    confidence = 0.96 if len(off_channel) == 1 else 0.9
    return propose(
        facts,
        Order.CYCLE,
        Cause.P2P_UNMATCHED,
        culprits,
        status=Status.HUNG,
        confidence=confidence if mismatch.mutual else 0.75,
        summary=f"{name_ranks(list(halves)).capitalize()} miss each other: {words}.",
        evidence=[
            Evidence("boundary", r, f"{_describe(o, groups)}{name_line(_line(r, o))}")
            for r, o in sorted(halves.items())
        ],
        location=_line(culprits[0], first),
        collective=_collective(first, groups),
        excludes=halves,
    )


def _describe(operation: OperationCall, groups: dict[str, ProcessGroup]) -> str:
    """``send to rank 1, tag 3, group default_pg``."""
    way = "to" if operation.method in _SENDS else "from"
    group = groups.get(operation.group)
    name = (group.description or group.name) if group is not None else operation.group
    peer = _peer(operation, groups)
    other = f"rank {peer}" if peer is not None else "any rank"
    return f"{operation.method} {way} {other}, tag {operation.tag}, group {name}"


def _collective(operation: OperationCall, groups: dict[str, ProcessGroup]) -> CollectiveRef:
    group = groups[operation.group]
    return CollectiveRef(
        group=group.description or group.name,
        group_id=group.name,
        ranks=list(group.members),
        seq=None,
        op=operation.method,
    )


def _wait_cycle(waits: dict[int, int]) -> list[int]:
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


def _never_before(view: RankView, held: OperationCall) -> bool:
    """True if the rank has used other channels, again and again, but never this one."""
    operations = view.progress.operations if view.progress else []
    earlier = [o for o in operations if _is_p2p(o) and o.index < held.index and o.completed]
    same = [
        o
        for o in earlier
        if (o.method, o.group, o.peer, o.tag) == (held.method, held.group, held.peer, held.tag)
    ]
    return len(earlier) >= USUAL_CHANNEL and not same and not _counted_on(held, earlier)


def _counted_on(held: OperationCall, earlier: list[OperationCall]) -> bool:
    """True if the tags of the channel are a count, and the operation's is the next one."""
    tags = [
        o.tag
        for o in earlier
        if (o.method, o.group, o.peer) == (held.method, held.group, held.peer)
    ][-USUAL_CHANNEL:]
    known = [tag for tag in [*tags, held.tag] if tag is not None]
    steps = {after - before for before, after in pairwise(known)}
    return len(known) == USUAL_CHANNEL + 1 and len(steps) == 1


@detector
def p2p_waits(facts: CaseFacts) -> Iterator[Proposal]:
    """``p2p_unmatched`` of two halves that miss each other; ``p2p_deadlock`` of a ring.

    A ring is ``p2p_unmatched`` where one of it left its own pattern.
    """
    if not facts.stuck:
        return
    groups = {group.name: group for group in facts.graph.groups}
    held = {r: o for r, v in facts.ranks.items() if (o := held_in(v)) is not None}
    mismatch = _find_mismatch(facts, held, groups)
    if mismatch is not None:
        yield _mismatch_proposal(facts, mismatch, groups)
        return
    if facts.graph.cycles or facts.graph.unmatched:
        return
    waits: dict[int, int] = {}
    for rank, operation in held.items():
        peer = _peer(operation, groups)
        if peer is None or peer not in held:
            continue
        if _other_half(rank, operation, facts.ranks[peer], groups) is None:
            waits[rank] = peer
    cycle = _wait_cycle(waits)
    if len(cycle) < 2:
        return
    off_channel = [r for r in cycle if _never_before(facts.ranks[r], held[r])]
    culprits = off_channel if len(off_channel) == 1 else cycle
    # Two that wait for each other are a deadlock, whoever strayed; in a longer ring a
    # message that was sent elsewhere is missed by somebody else.
    alone = len(off_channel) == 1 and len(cycle) > 2
    first = held[culprits[0]]
    words = "; ".join(
        f"rank {r} in {held[r].method} {'to' if held[r].method in _SENDS else 'from'} rank "
        f"{waits[r]}, tag {held[r].tag}"
        for r in cycle
    )
    yield propose(
        facts,
        Order.CYCLE,
        Cause.P2P_UNMATCHED if alone else Cause.P2P_DEADLOCK,
        culprits,
        status=Status.HUNG,
        confidence=0.85 if alone else 0.95,
        summary=(
            f"Rank {culprits[0]} is in a {first.method} that nobody answers and that it never "
            f"issued before: {words}."
            if alone
            else f"{name_ranks(cycle).capitalize()} wait for each other: {words}."
        ),
        evidence=[
            Evidence("boundary", r, f"{held[r].method}{name_line(_line(r, held[r]))}")
            for r in cycle
        ],
        location=_line(culprits[0], first),
        collective=_collective(first, groups),
        excludes=cycle,
    )


def _line(rank: int, operation: OperationCall) -> Location | None:
    if not operation.file:
        return None
    return Location(
        file=operation.file, line=operation.line, function=operation.function, rank=rank
    )
