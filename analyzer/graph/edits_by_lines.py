"""The edit of an order that lines tell, where a rank stands in the call at which it left the order.

Nothing follows that call, so that the order alone leaves open whether the rank left out what its
peers wait in, or turned the two round.
"""

from __future__ import annotations

from hanglab.analyzer.flight_recorder.columns import Entries, Frame
from hanglab.analyzer.graph.left_order import LeftOrder
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.matching.program_order import Edit
from hanglab.analyzer.matching.signatures import call_site


def edit_by_lines(
    departure: LeftOrder, mine: Call | None, theirs: Call | None, lookup: CallLookup
) -> Edit | None:
    """SWAPPED or LEFT_OUT for a ring of calls on two groups, ``mine`` and ``theirs``; else None.

    A line that calls on one group after another may do so in another order.  A call by a way
    that the rank never took to it came out of its turn; by its usual way it came in its turn,
    behind what is left out.
    """
    entries = lookup.entries(departure.rank)
    if mine is None or theirs is None or entries is None or departure.tied or departure.others:
        return None
    if departure.index != len(entries) - 1 or departure.edit not in (None, Edit.ADDED):
        return None
    if mine.seq is None or theirs.seq is None or mine.group is theirs.group:
        return None
    here, there = call_site(mine.stack), call_site(theirs.stack)
    if departure.rank not in theirs.group.members or here is None or there is None:
        return None
    left_out = Edit.LEFT_OUT in departure.proved
    before = {
        tuple(entries.stack_at(row))
        for row in range(departure.index)
        if entries.group_at(row) == mine.group.name
        and entries.operation_at(row).op == mine.op
        and entries.arguments_at(row) == mine.arguments
    }
    if not before:
        return None
    if _passes_over_backward(entries, departure.index, there):
        return Edit.LEFT_OUT
    if here == there:
        # A line that never called on this group has taken it for the other one.
        return Edit.SWAPPED if tuple(mine.stack) in before and not left_out else None
    if tuple(mine.stack) not in before:
        return Edit.SWAPPED
    return Edit.LEFT_OUT if left_out else None


def _passes_over_backward(entries: Entries, index: int, line: Frame) -> bool:
    """True if a call comes twice at once, and in the round before a backward pass made all between.

    Its reductions, one for each bucket of gradients, are of one ``line``, and left out as one.
    """
    alike = [row for row in range(index) if entries.stack[row] == entries.stack[index]]
    if len(alike) < 2 or alike[-1] != index - 1:
        return False
    between = [entries.stack_at(row) for row in range(alike[-2] + 1, alike[-1])]
    return bool(between) and all(
        call_site(stack) == line and any("torch/autograd/" in frame.file for frame in stack)
        for stack in between
    )
