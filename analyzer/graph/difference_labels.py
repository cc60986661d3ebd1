"""Labels of differences: other arguments, or other operations that meet after a shift."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hanglab.analyzer.flight_recorder.columns import Arguments
from hanglab.analyzer.graph.left_order import LeftOrder
from hanglab.analyzer.graph.thresholds import AGREEING_COUNTS
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.calls import Call, Difference, Divergence
from hanglab.analyzer.matching.program_order import Edit
from hanglab.analyzer.matching.signatures import (
    ARGUMENT_DIFFERENCES,
    argument_difference,
    call_site,
)

#: Edits of a rank's order from which on its calls meet those of another number.
_SHIFTS = frozenset({Edit.LEFT_OUT, Edit.ADDED})


def label_by_shift(divergence: Divergence, lookup: CallLookup) -> None:
    """Let a pair's calls tell that other operations meet: one has those of the other's next number.

    No call has other arguments by itself then; one of the two has made one too many, or too few.
    """
    if divergence.difference not in ARGUMENT_DIFFERENCES or len(divergence.calls) != 2:
        return
    one, other = (calls_since(divergence, rank, lookup) for rank in divergence.calls)
    if any(one[number] == other[number] for number in one.keys() & other.keys()):
        return
    for mine, theirs in ((one, other), (other, one)):
        met = [call == theirs[number + 1] for number, call in mine.items() if number + 1 in theirs]
        if len(met) >= AGREEING_COUNTS and all(met):
            divergence.difference = Difference.OPERATION


def label_by_lines(divergence: Divergence, lookup: CallLookup) -> None:
    """Let lines tell that other operations meet: one is a line's, the other is made within torch.

    What DistributedDataParallel's reducer issues has no line in a dump whose other calls have one.
    """
    if divergence.difference not in ARGUMENT_DIFFERENCES:
        return
    with_line: dict[tuple[str, Arguments], Call] = {}
    without: dict[tuple[str, Arguments], Call] = {}
    for call in divergence.calls.values():
        side = without if call_site(call.stack) is None else with_line
        side.setdefault((call.op, call.arguments), call)
    pairs = [(one, other) for one in without.values() for other in with_line.values()]
    if not pairs or any(argument_difference(*pair) is None for pair in pairs):
        return
    if all(_has_lines(call.rank, lookup) for call in without.values()):
        divergence.difference = Difference.OPERATION


def _has_lines(rank: int, lookup: CallLookup) -> bool:
    entries = lookup.entries(rank)
    return entries is not None and any(call_site(stack) is not None for stack in entries.stacks)


def label_by_sides(divergence: Divergence) -> None:
    """Let the call of a rank that is named tell what differs, where others differ from each other.

    What two of its peers differ in is no fault of its own.
    """
    if not divergence.deviating or divergence.difference not in ARGUMENT_DIFFERENCES:
        return
    mine = divergence.calls[divergence.deviating[0]]
    kinds = {
        argument_difference(mine, call)
        for rank, call in divergence.calls.items()
        if rank not in divergence.deviating
    }
    if divergence.difference not in kinds:
        differing = (kind for kind in ARGUMENT_DIFFERENCES if kind in kinds)
        divergence.difference = next(differing, divergence.difference)


def label_by_departure(
    divergences: Sequence[Divergence], departure: LeftOrder, lookup: CallLookup
) -> None:
    """Let a rank's departure from the common order tell what its difference there follows from.

    From the call on that it left out, or had too many, it is other operations that meet.
    """
    edit = departure.edit
    for divergence in divergences:
        if edit is None or divergence.deviating != (departure.rank,):
            continue
        if not _shifts_calls(departure, divergence, lookup):
            continue
        if edit in _SHIFTS and not _may_be_shifted(divergence, departure.rank, edit, lookup):
            continue
        if edit is Edit.ADDED and _is_due(divergence, departure.rank, lookup):
            continue
        index = lookup.index_of(departure.rank, divergence.group.name, divergence.seq)
        if departure.index is not None and index < departure.index:
            continue
        later = departure.index is not None and index > departure.index
        if edit is Edit.LEFT_OUT and _is_peers_call(divergence, departure.rank, later=later):
            continue
        divergence.skipped = edit is Edit.LEFT_OUT
        other_call = edit is Edit.ADDED or (edit is Edit.CHANGED and departure.regrouped)
        if other_call and divergence.difference in ARGUMENT_DIFFERENCES:
            divergence.difference = Difference.OPERATION


def _shifts_calls(departure: LeftOrder, divergence: Divergence, lookup: CallLookup) -> bool:
    """True if one of the calls at which a rank left the order is of a difference's group.

    What is left out of one group, or added to it, shifts no number of another.
    """
    ends = [(departure.rank, departure.index), (departure.peer, departure.peer_index)]
    if departure.edit is Edit.LEFT_OUT:
        del ends[0]
    elif departure.edit is Edit.ADDED:
        del ends[1]
    groups = set()
    for rank, index in ends:
        entries = lookup.entries(rank)
        if entries is None or index is None:
            return True
        groups.add(entries.group_at(index))
    return divergence.group.name in groups


def _may_be_shifted(divergence: Divergence, rank: int, edit: Edit, lookup: CallLookup) -> bool:
    """False if what a rank called is not what its peers called next, or before; they show it."""
    mine = calls_since(divergence, rank, lookup)
    here, there = divergence.seq + (edit is Edit.ADDED), divergence.seq + (edit is Edit.LEFT_OUT)
    others = (calls_since(divergence, r, lookup) for r in divergence.calls if r != rank)
    met = [mine[here] == theirs[there] for theirs in others if here in mine and there in theirs]
    return not met or any(met)


def _is_due(divergence: Divergence, rank: int, lookup: CallLookup) -> bool:
    """True if a rank made its peers' call, from their line, with arguments that no call has.

    One that is too many is a call of the program, and has the arguments of one.  That the rank
    comes to its peers' call later, in an order of its own, is not seen where its order ends.
    """
    mine = divergence.calls[rank]
    others = [call for other, call in divergence.calls.items() if other != rank]
    sites = {call_site(call.stack) for call in (mine, *others)}
    return (
        sites != {None}
        and len(sites) == 1
        and not any(
            (mine.op, mine.arguments) == call
            for other in divergence.calls
            for number, call in calls_since(divergence, other, lookup, 0).items()
            if (other, number) != (rank, divergence.seq)
        )
    )


def _is_peers_call(divergence: Divergence, rank: int, *, later: bool) -> bool:
    """True if a rank made its peers' call in another way, from their line: it is not past that.

    By another operation; or in any way, if it did so ``later`` than something that it does first.
    """
    mine = divergence.calls[rank]
    site = call_site(mine.stack)
    return site is not None and any(
        (later or call.op != mine.op) and call_site(call.stack) == site
        for other, call in divergence.calls.items()
        if other != rank
    )


def calls_since(
    divergence: Divergence, rank: int, lookup: CallLookup, since: int | None = None
) -> dict[int, tuple[str, Arguments]]:
    """Operations and arguments of a rank's calls of the group, by number, since they differ."""
    since = divergence.seq if since is None else since
    entries = lookup.entries(rank)
    if entries is None:
        return {}
    mine = entries.in_group(divergence.group.name) & ~entries.is_p2p
    rows = np.flatnonzero(mine & (entries.seq >= since)).tolist()
    return {
        int(entries.seq[row]): (entries.operation_at(row).op, entries.arguments_at(row))
        for row in rows
    }
