"""Each rank's own order of operations so far, and whether it broke it.

Where two ranks wait for each other, neither group nor number tells who is
wrong.  Their own past may: the one that goes on as in every step before is
right, the one that jumped ahead in its own order is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from hanglab.analyzer.communication.lookup import Lookup
from hanglab.analyzer.communication.order import period_of
from hanglab.analyzer.communication.signatures import call_site, comparable_sizes
from hanglab.analyzer.dumps.columns import Entries

#: So many entries before an operation are looked at.
_PAST = 1024


class Habit(Enum):
    KEPT = "kept"
    #: It did what it usually does later.
    JUMPED = "jumped"
    UNKNOWN = "unknown"


def find_breaker(places: Mapping[int, int], lookup: Lookup) -> int | None:
    """The one rank that jumped ahead in its own order while all others kept theirs.

    ``places`` maps ranks to the index of the entry in which they wait.
    """
    habits = {rank: habit_at(lookup.entries(rank), index) for rank, index in places.items()}
    jumped = [rank for rank, habit in habits.items() if habit is Habit.JUMPED]
    kept = [rank for rank, habit in habits.items() if habit is Habit.KEPT]
    return jumped[0] if len(jumped) == 1 and len(kept) == len(habits) - 1 else None


def habit_at(entries: Entries | None, index: int) -> Habit:
    """Whether the entry at ``index`` is what the rank's own pattern has next."""
    if entries is None or not 0 < index < len(entries):
        return Habit.UNKNOWN
    start = max(0, index - _PAST)
    calls = [_call(entries, row) for row in range(start, index + 1)]
    past, now = calls[:-1], calls[-1]
    # Without call sites a pattern of operations proves too little.
    if now is None:
        return Habit.UNKNOWN
    period = period_of(past)
    if period is None:
        return Habit.UNKNOWN
    pattern = past[-period:]
    if now == pattern[0]:
        return Habit.KEPT
    return Habit.JUMPED if now in pattern else Habit.UNKNOWN


def _call(entries: Entries, row: int) -> tuple[object, ...] | None:
    """What a call is, its place in the program included; None without one."""
    stack = int(entries.stack[row])
    site = call_site(entries.stacks[stack]) if stack >= 0 else None
    if site is None:
        return None
    operation = entries.operations[int(entries.operation[row])]
    sizes = comparable_sizes(operation.op, entries.arguments[int(entries.argument[row])])
    name = entries.group_names[int(entries.group[row])].name
    return name, operation, sizes, site
