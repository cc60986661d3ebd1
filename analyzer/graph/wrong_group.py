"""Ranks that make the same call of the program on different groups: one has taken the wrong group.

That is no order of groups: each of them enters one there.  Where a call goes over several groups
in a loop, it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hanglab.analyzer.flight_recorder.columns import Entries, Frame
from hanglab.analyzer.graph.waits import OpenOperation, OpenOperations
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.matching.group_history import continuation
from hanglab.analyzer.matching.groups import ResolvedGroup
from hanglab.analyzer.matching.signatures import CODE


@dataclass(frozen=True)
class WrongGroup:
    #: The one rank that never made the call on its group before; None where nothing tells.
    deviating: int | None


def find_wrong_group(
    calls: Mapping[int, Call], indices: Mapping[int, int], lookup: CallLookup
) -> WrongGroup | None:
    """The wrong group in a ring of collectives, each rank's at an index of its entries.

    None unless all of them are the same call by all lines that lead to it.
    """
    sites = {_lines(call.stack) for call in calls.values()}
    site = next(iter(sites))
    if len(sites) > 1 or not site or len({call.op for call in calls.values()}) > 1:
        return None
    if any(call.seq is None for call in calls.values()):
        return None
    helper = any(may_be_a_helper(call.stack) for call in calls.values())
    used = {}
    for rank, index in indices.items():
        entries = lookup.entries(rank)
        if entries is None:
            return None
        used[rank] = frozenset(_groups_at(entries, index, site))
        if len(used[rank]) > 1:
            return None
    if helper:
        # Of two that had one group there in each round before, either may be elsewhere.
        alike = len(calls) == 2 and len({*used.values()}) == 1 and all(used.values())
        return WrongGroup(None) if alike else None
    if not any(used.values()) and len({call.arguments.input_sizes for call in calls.values()}) > 1:
        # Each comes with what belongs to its group: the first round of a loop over several.
        return None
    new = [rank for rank, call in calls.items() if used[rank] and call.group.name not in used[rank]]
    usual = [rank for rank, call in calls.items() if call.group.name in used[rank]]
    one = len(new) == 1 and len(usual) == len(calls) - 1
    return WrongGroup(new[0] if one else None)


@dataclass(frozen=True)
class CallOnWrongGroup:
    """The call that ``rank`` alone made in ``taken``, and its peers together in ``usual``."""

    rank: int
    taken: OpenOperation
    usual: OpenOperation


def find_calls_on_wrong_group(
    waits: OpenOperations, groups: Sequence[ResolvedGroup], lookup: CallLookup
) -> Iterator[CallOnWrongGroup]:
    """Calls of one rank on a group that nobody else entered, which all its peers made on theirs.

    All members of a group but one are in one call there, and that one is in the same call on
    another group: not once did it make it there before, or it has never used its peers' group.
    """
    for usual in waits.operations.values():
        if usual.seq is None or len(usual.absent) != 1 or usual.unknown or usual.group.doubtful:
            continue
        (rank,) = usual.absent
        for taken in waits.first(rank):
            if taken.seq is not None and len(taken.waiters) == 1 and taken.group is not usual.group:
                made = CallOnWrongGroup(rank, taken, usual)
                if _is_wrong(made, _is_taken(made, groups), lookup):
                    yield made


def _is_taken(made: CallOnWrongGroup, groups: Sequence[ResolvedGroup]) -> bool:
    """True if peers give the name of the rank's group to another one that the rank is in, too."""
    taken = made.taken.group
    return any(
        group is not taken and group.group.name == taken.group.name and made.rank in group.members
        for group in groups
    )


def _is_wrong(made: CallOnWrongGroup, taken_name: bool, lookup: CallLookup) -> bool:
    rank, taken, usual = made.rank, made.taken, made.usual
    entries, mine = lookup.entries(rank), taken.waiters[rank]
    index = mine.index
    call = lookup.at(rank, index, taken.group.group, completed=False)
    if entries is None or call is None:
        return False
    lookup.prefetch(usual.waiters)
    theirs = [lookup.pending(other, one, usual.group.group) for other, one in usual.waiters.items()]
    site = _lines(call.stack)
    if not site or any((one.op, _lines(one.stack)) != (call.op, site) for one in theirs):
        return False
    used = _groups_at(entries, index, site)
    if used:
        # What is one line may be called from several: of two, either may be elsewhere.
        sure = len(theirs) > 1 or not may_be_a_helper(call.stack)
        return sure and used == {usual.group.group.name}
    same = all(one.arguments.input_sizes == call.arguments.input_sizes for one in theirs)
    # A line that calls on several groups in turn has called on each of them in its first round:
    # the buffer holds all calls on this one, of other lines.  Whoever had entered it would have it
    # open.
    earlier = entries.in_group(taken.group.group.name)[:index] & ~entries.is_p2p[:index]
    new = int(earlier.sum()) + 1 == taken.seq and (
        usual.seq == 1 or usual.waiters.keys() >= {*taken.unknown}
    )
    return (len(theirs) > 1 or taken_name) and same and new


def _lines(stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
    return tuple(CODE.user_frames(stack))


def may_be_a_helper(stack: tuple[Frame, ...]) -> bool:
    """True where only the innermost line is known, and that may be called from several."""
    return len(stack) == 1 and stack[0].function != "<module>"


def _groups_at(entries: Entries, index: int, site: tuple[Frame, ...]) -> set[str]:
    """Groups on which a rank made a call before."""
    here = {number for number, stack in enumerate(entries.stacks) if _lines(stack) == site}
    return {entries.group_at(row) for row in range(index) if int(entries.stack[row]) in here}


def repeats_call(
    rank: int, calls: Mapping[int, Call], index: int, lookup: CallLookup, *, level: bool
) -> bool:
    """True if a rank's call in a ring, at ``index``, is the one that it made last, once more.

    The others wait in other lines, and one of them passed that one on its group before: a loop
    over groups has one line for all, and a branch with an order of its own has other lines.
    Behind one call too many the rank goes on as in its rounds; behind two that changed places,
    it does not.  Where no rounds tell, ranks that have all called equally often (``level``) have
    none too many.
    """
    call, entries = calls[rank], lookup.entries(rank)
    site = _lines(call.stack)
    if entries is None or not site or index <= 0:
        return False
    if any(_lines(other.stack) == site for other in calls.values() if other is not call):
        return False
    last = lookup.at(rank, index - 1, call.group, completed=True)
    group = entries.group_at(index - 1)
    if last is None or (last.op, group, _lines(last.stack)) != (call.op, call.group.name, site):
        return False
    issued = list(zip(entries.group.tolist(), entries.stack.tolist(), strict=True))
    later = issued[index + 1 :]
    expected = continuation(issued[:index], len(later))
    if expected not in ([], later) or (level and not expected):
        return False
    return any(
        call.group.name in _groups_at(theirs, len(theirs), site)
        for other in calls
        if other != rank and (theirs := lookup.entries(other)) is not None
    )
