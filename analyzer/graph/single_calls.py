"""Single calls that explain waits without a ring: on a wrong group, one too many, mismatched."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hanglab.analyzer.graph.added_operations import find_added_operations
from hanglab.analyzer.graph.calls_of_ranks import CallsOfRanks
from hanglab.analyzer.graph.edits_by_lines import edit_by_lines
from hanglab.analyzer.graph.entry_order import message_crossed
from hanglab.analyzer.graph.left_order import LeftOrder
from hanglab.analyzer.graph.message_balance import UnmatchedMessages
from hanglab.analyzer.graph.thresholds import FULL_RANKS
from hanglab.analyzer.graph.unanswered_messages import find_unanswered_message
from hanglab.analyzer.graph.wait_for_graph import (
    Cycle,
    MismatchedMessage,
    OrderDeparture,
    Unmatched,
)
from hanglab.analyzer.graph.waits import Key, OpenOperation, OpenOperations
from hanglab.analyzer.graph.wrong_group import CallOnWrongGroup, find_calls_on_wrong_group
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.calls import Call, Divergence
from hanglab.analyzer.matching.groups import ResolvedGroup
from hanglab.analyzer.matching.merging import MergedSummaries
from hanglab.analyzer.matching.message_mismatches import MessageMismatch
from hanglab.analyzer.matching.program_order import Edit


def crossed_messages(waits: OpenOperations, shown: CallsOfRanks) -> list[Cycle]:
    """A message and a collective, or two collectives, that two ranks have in opposite orders."""
    crossed = message_crossed(waits, shown.lookup) or _begun_crosswise(waits)
    if crossed is None:
        return []
    calls = [
        shown.call(rank, waiting.waiters[rank], waiting.group.group, full=True)
        for rank, waiting in crossed.items()
    ]
    return [
        Cycle(
            tuple(crossed),
            tuple(calls),
            p2p=False,
            deviating=_alone_in_begun(waits, crossed),
            candidates=tuple(sorted(crossed)),
            streams=True,
        )
    ]


def _begun_crosswise(waits: OpenOperations) -> dict[int, OpenOperation] | None:
    """Two ranks each of whose devices is in a collective that the other's has not begun.

    A communicator each: in which order a device begins what is on several is left to it.
    """
    begun: dict[Key, set[int]] = {}
    waiting: dict[Key, set[int]] = {}
    for key, one in waits.operations.items():
        ranks = {rank for rank, pending in one.waiters.items() if pending.started}
        rest = {rank for rank, pending in one.waiters.items() if pending.started is False}
        if one.seq is not None and ranks and rest:
            begun[key], waiting[key] = ranks, rest
    queued: dict[int, list[Key]] = {}
    for key, rest in waiting.items():
        for rank in rest:
            queued.setdefault(rank, []).append(key)
    for key, ranks in begun.items():
        for rank in sorted(ranks & queued.keys()):
            for other in queued[rank]:
                peers = begun[other] & waiting[key]
                if peers:
                    return {rank: waits.operations[key], min(peers): waits.operations[other]}
    return None


def _alone_in_begun(waits: OpenOperations, crossed: dict[int, OpenOperation]) -> tuple[int, ...]:
    """The one of two ranks whose device alone has begun what it has, where several have the other.

    None of a message and a collective.
    """
    both = set.intersection(*(set(waiting.group.members) for waiting in crossed.values()))
    begun = [
        [rank for rank, one in waiting.waiters.items() if one.started and rank in both]
        for waiting in crossed.values()
    ]
    few, many = sorted(begun, key=len)
    messages = any(waiting.seq is None for waiting in crossed.values())
    return tuple(few) if not messages and len(few) == 1 < len(many) else ()


def mismatched_messages(
    mismatches: list[MessageMismatch], lookup: CallLookup
) -> list[MismatchedMessage]:
    found = []
    for one in mismatches[:FULL_RANKS]:
        sent, taken = (
            lookup.message(rank, one.group, channel, at) for rank, channel, at in one.ends
        )
        if sent is not None and taken is not None:
            found.append(
                MismatchedMessage(sent, taken, one.difference, one.deviating, one.finished)
            )
    return found


def calls_on_wrong_group(
    divergences: list[Divergence],
    waits: OpenOperations,
    groups: Sequence[ResolvedGroup],
    shown: CallsOfRanks,
) -> list[Cycle]:
    """Calls on the wrong group, which explain whatever waits in it, or where they lack."""
    found: dict[int, CallOnWrongGroup] = {}
    for made in find_calls_on_wrong_group(waits, groups, shown.lookup):
        found.setdefault(made.rank, made)
    _explain([one for s in found.values() for one in (s.taken, s.usual)], waits)
    cycles = []
    for made in found.values():
        mine = shown.call(
            made.rank, made.taken.waiters[made.rank], made.taken.group.group, full=True
        )
        theirs = [
            shown.call(rank, pending, made.usual.group.group, full=True)
            for rank, pending in made.usual.waiters.items()
        ]
        divergences[:] = [d for d in divergences if d.group != mine.group]
        ranks = (made.rank, *made.usual.waiters)
        cycles.append(
            Cycle(
                ranks,
                (mine, *theirs),
                False,
                deviating=(made.rank,),
                candidates=ranks,
                wrong_group=True,
            )
        )
    return cycles


def added_calls(waits: OpenOperations, shown: CallsOfRanks) -> list[Call]:
    """Calls that one rank has too many, which explain who waits in that group."""
    found = list(find_added_operations(waits, shown.lookup))
    _explain(found, waits)
    return [
        shown.call(rank, pending, operation.group.group, full=True)
        for operation in found
        for rank, pending in operation.waiters.items()
    ]


def unmatched_calls(
    found: Sequence[UnmatchedMessages], waits: OpenOperations, shown: CallsOfRanks
) -> list[Unmatched]:
    """Messages whose other half their peers have left out, or never had."""
    return [_unmatched(one, waits, shown) for one in found]


def _unmatched(one: UnmatchedMessages, waits: OpenOperations, shown: CallsOfRanks) -> Unmatched:
    calls = [
        shown.call(rank, pending, message.group.group, full=True)
        for message in one.messages
        for rank, pending in message.waiters.items()
    ]
    first, *missed = sorted(calls, key=lambda call: (call.rank == one.deviating, call.rank))
    by = () if one.deviating is None else (one.deviating,)
    return Unmatched(first, None, by, tuple(missed), counted=not one.shifted, shifted=one.shifted)


def unanswered_calls(
    merged: MergedSummaries,
    waits: OpenOperations,
    shown: CallsOfRanks,
    left_rounds_at: Callable[[int], int | None],
) -> list[Unmatched]:
    """The message whose other half lacks, where that alone explains all that is open."""
    found = find_unanswered_message(merged, waits, shown.lookup, left_rounds_at)
    if found is None or found.peer is None:
        return []
    ((rank, pending),) = found.waiters.items()
    first, place = waits.by_rank[found.peer][0]
    instead = shown.call(found.peer, first, place.group.group, full=True)
    return [Unmatched(shown.call(rank, pending, found.group.group, full=True), instead)]


def shown_departure(departure: LeftOrder, shown: CallsOfRanks) -> OrderDeparture:
    """A departure from the common order, with the calls at which the rank and a peer part."""
    mine = shown.at(departure.rank, departure.index)
    theirs = shown.at(departure.peer, departure.peer_index)
    by_lines = edit_by_lines(departure, mine, theirs, shown.lookup)
    edit = by_lines or departure.edit
    return OrderDeparture(
        departure.rank,
        (departure.peer,) if departure.tied else (),
        mine,
        theirs,
        left_out=edit is Edit.LEFT_OUT,
        added=edit is Edit.ADDED,
        own=departure.own,
        swapped=departure.edit is Edit.SWAPPED,
        ring=by_lines is Edit.SWAPPED,
        left_by_others=departure.left_by_others,
        counted=departure.counted,
        others=departure.others,
        siblings=departure.siblings,
    )


def _explain(begins: Sequence[OpenOperation], waits: OpenOperations) -> None:
    """Mark operations as explained, and those behind them in their groups."""
    since = {begin.key[0]: begin.seq or 0 for begin in begins}
    for operation in waits.operations.values():
        place = operation.key[0]
        if operation.seq is not None and operation.seq >= since.get(place, operation.seq + 1):
            operation.explained = True
