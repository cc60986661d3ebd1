"""Operations that each thread of a rank issued, in its order, as calls that ranks can compare.

A rank that died left the calls that its Python boundary saw, and the numbers of those between
them, which torch's own reducer issues: these stand in the order as operations that are not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT, Entries
from hanglab.analyzer.graph.thresholds import COMPARED_COLLECTIVES
from hanglab.analyzer.matching.entry_queries import thread_of
from hanglab.analyzer.matching.signatures import call_site, comparable_sizes
from hanglab.analyzer.matching.summary import RankSummary
from hanglab.recorder.case.operations import op_of

#: Place of messages, which have no number; whom they go to, or come from, each rank has for itself.
NO_PLACE = -1


class CallNumbers(NamedTuple):
    """Numbers that stand for parts of a call, each equal for what is equal on all ranks."""

    #: Operation, sizes that all members have alike, and line.
    call: int
    #: The first two, with group and ends of a message.
    plain: int
    #: All of that, and the shapes as this rank has them: the same in each of its own rounds.
    own: int
    #: Operation and line; the same with the first tensor's size, ABSENT where that is not known.
    lined: int
    lined_input: int
    #: The line; None where it is not known.
    site: int | None


_UNKNOWN = CallNumbers(ABSENT, ABSENT, ABSENT, ABSENT, ABSENT, None)


@dataclass(frozen=True, slots=True)
class IssuedCall:
    #: ABSENT for an operation that is not known but by its number.
    index: int
    #: Index of the group, and its sequence number; neither of a message.
    place: int
    seq: int
    numbers: CallNumbers
    done: bool

    @property
    def site(self) -> int | None:
        return self.numbers.site

    @property
    def message(self) -> bool:
        return self.place == NO_PLACE

    def is_one_with(self, other: IssuedCall) -> bool:
        """True if two ranks' calls are one collective, by its number."""
        if self.message or (self.place, self.seq) != (other.place, other.seq):
            return False
        if self._is_told_as(other):
            return self.numbers.lined == other.numbers.lined
        return self.numbers.plain == other.numbers.plain

    def is_called_as(self, other: IssuedCall) -> bool:
        """True if two calls are of one operation, with the same sizes, and from one line."""
        if self._is_told_as(other):
            return self.numbers.call == other.numbers.call
        return self.numbers.plain == other.numbers.plain

    def _is_told_as(self, other: IssuedCall) -> bool:
        """False if the line of one of the two alone is known: JSON dumps have none."""
        return (self.site is None) == (other.site is None)

    @property
    def known(self) -> bool:
        return self.index != ABSENT


@dataclass(frozen=True)
class IssuedOrder:
    """Operations that a thread of a rank issued, oldest first."""

    rank: int
    issued: list[IssuedCall]
    #: Groups that the rank is in.
    places: frozenset[int]
    #: Those of them in which the thread called something.
    used: frozenset[int]
    #: Lines that made calls.
    sites: frozenset[int]
    #: The ring holds it from the first on.
    whole: bool
    #: Sizes are those of a buffer; the boundary keeps the first tensor's alone.
    sized: bool


class OrderReader:
    """Makes orders of ranks' entries, with one number for what is one call on all of them."""

    def __init__(self, *, messages: bool) -> None:
        self._messages = messages
        self._numbers: dict[object, int] = {}

    def read(
        self,
        summary: RankSummary,
        entries: Entries,
        places: dict[str, int],
        member_of: frozenset[int],
    ) -> list[IssuedOrder]:
        """Orders of the rank's threads; ``places`` are the groups by the names in its dump."""
        open_ = {pending.index for pending in summary.pending}
        sized = bool((entries.record_id != ABSENT).any())
        found = []
        for issued in self._by_thread(entries, places, open_).values():
            if not sized:
                issued = _with_unknown(issued)
            found.append(
                IssuedOrder(
                    summary.rank,
                    issued[-COMPARED_COLLECTIVES:],
                    member_of,
                    frozenset(one.place for one in issued if not one.message),
                    frozenset(one.site for one in issued if one.site is not None),
                    summary.whole and len(issued) <= COMPARED_COLLECTIVES,
                    sized,
                )
            )
        return found

    def _number(self, one: object) -> int:
        return self._numbers.setdefault(one, len(self._numbers))

    def _by_thread(
        self, entries: Entries, places: dict[str, int], open_: set[int]
    ) -> dict[str, list[IssuedCall]]:
        calls: dict[tuple[int, int, int, int], CallNumbers] = {}
        threads: dict[str, list[IssuedCall]] = {}
        wanted = ~entries.is_p2p & (entries.seq >= 0)
        if self._messages:
            halves = [bool(op_of(operation.op).half) for operation in entries.operations]
            wanted |= entries.is_p2p & np.array(halves, dtype=np.bool_)[entries.operation]
        for row in np.flatnonzero(wanted).tolist():
            message = bool(entries.is_p2p[row])
            place = places[entries.group_at(row)]
            operation, stack = int(entries.operation[row]), int(entries.stack[row])
            key = operation, int(entries.argument[row]), stack, place if message else NO_PLACE
            if key not in calls:
                calls[key] = self._call(entries, *key)
            at = (NO_PLACE, ABSENT) if message else (place, int(entries.seq[row]))
            threads.setdefault(thread_of(entries, row), []).append(
                IssuedCall(row, *at, calls[key], row not in open_)
            )
        return threads

    def _call(
        self, entries: Entries, number: int, argument: int, stack: int, group: int
    ) -> CallNumbers:
        """Numbers of a call; of a message ``group`` is the place of its group, else NO_PLACE."""
        message = group != NO_PLACE
        operation, arguments = entries.operations[number], entries.arguments[argument]
        site = call_site(entries.stacks[stack]) if stack >= 0 else None
        # A message has another end on each rank, and may have another size.
        sizes = None if message else comparable_sizes(operation.op, arguments)
        name = op_of(operation.op).half if message else operation.op
        ends = (group, operation.src, operation.dst) if message else None
        first = prod(arguments.input_sizes[0]) if arguments.input_sizes and sizes else None
        return CallNumbers(
            self._number((name, sizes, site)),
            self._number((name, sizes, ends)),
            self._number((name, sizes and arguments.input_sizes, ends, site)),
            self._number((name, site)),
            ABSENT if first is None else self._number((name, first, site)),
            None if site is None else self._number(site),
        )


def _with_unknown(issued: list[IssuedCall]) -> list[IssuedCall]:
    """The order with an operation that is not known for each number between those of a group."""
    last: dict[int, int] = {}
    found: list[IssuedCall] = []
    for one in issued:
        if not one.message:
            since = last.get(one.place, one.seq)
            for seq in range(max(since, one.seq - COMPARED_COLLECTIVES) + 1, one.seq):
                found.append(IssuedCall(ABSENT, one.place, seq, _UNKNOWN, done=True))
            last[one.place] = one.seq
        found.append(one)
    return found


def since_first_common(
    here: list[IssuedCall], there: list[IssuedCall]
) -> tuple[list[IssuedCall], list[IssuedCall]] | None:
    """Two orders from the first collective on that both have; None where there is none."""
    starts = _first_common(here, there)
    if starts is None:
        return None
    return _since(here, there, starts), _since(there, here, starts[::-1])


def _first_common(here: list[IssuedCall], there: list[IssuedCall]) -> tuple[int, int] | None:
    numbers = {
        (one.place, one.seq): at for at, one in reversed(list(enumerate(there))) if not one.message
    }
    for at, one in enumerate(here):
        if not one.message and (one.place, one.seq) in numbers:
            return at, numbers[one.place, one.seq]
    return None


def _since(
    here: list[IssuedCall], there: list[IssuedCall], starts: tuple[int, int]
) -> list[IssuedCall]:
    """Operations of one order from its start on, without those that the other has before its own.

    Both have done them: in the round in which a ring begins each may have an order of its own.
    """
    before = {(one.place, one.seq) for one in there[: starts[1]] if not one.message}
    return [o for o in here[starts[0] :] if o.message or (o.place, o.seq) not in before]
