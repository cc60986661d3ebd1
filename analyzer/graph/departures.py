"""The one rank that left the order which all others keep: where, and by what edit of it.

All ranks run one program.  Any two are compared in what both would do: operations of groups of
both, and calls that both make at all.  Where all that disagree disagree with one rank, and are
more than one, that rank is the odd one, whatever group or number the job waits in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from hanglab.analyzer.flight_recorder.columns import Entries
from hanglab.analyzer.graph.thresholds import COMPARED_ORDERS
from hanglab.analyzer.graph.waits import OpenOperations
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.groups import GroupTable
from hanglab.analyzer.matching.merging import MergedSummaries
from hanglab.analyzer.matching.program_order import Edit, Parting, Token, find_parting
from hanglab.analyzer.matching.signatures import call_site, comparable_sizes
from hanglab.analyzer.matching.summary import thread_of


@dataclass(frozen=True)
class Departure:
    """``rank`` left the common order at its entry ``index`` (None: behind its last one).

    ``peer`` is one of those who keep it, with the entry that it has there.
    """

    rank: int
    index: int | None
    peer: int
    peer_index: int | None
    proved: frozenset[Edit]
    possible: frozenset[Edit]

    @property
    def edit(self) -> Edit | None:
        """The one edit that it can be: whoever stands in one call may have the other come next."""
        (edit, *others) = self.proved or {None}
        return None if others or Edit.SWAPPED in self.possible else edit


@dataclass(frozen=True)
class _Issued:
    index: int
    #: Index of the group, and its sequence number.
    place: int
    seq: int
    #: Operation, sizes that all members have alike, and line; no line where none is known.
    call: tuple[object, ...]
    done: bool


@dataclass(frozen=True)
class _Order:
    """Collectives that a thread of a rank issued, oldest first."""

    rank: int
    issued: list[_Issued]
    places: frozenset[int]
    calls: frozenset[tuple[object, ...]]
    #: The ring holds it from the first on.
    whole: bool
    #: Its thread is not told, so it may be several in one.
    mixed: bool


class ProgramOrders:
    """Orders of all ranks of a small job, and where any two of them part."""

    def __init__(
        self, merged: MergedSummaries, group_table: GroupTable, lookup: CallLookup
    ) -> None:
        self._groups = group_table.groups
        self._orders: dict[int, list[_Order]] = {}
        ranks = sorted(merged.ranks)
        lookup.prefetch(ranks)
        for rank in ranks:
            summary, entries = merged.ranks[rank], lookup.entries(rank)
            if entries is None or any(part.active_only for part in summary.parts):
                continue
            places = {
                part.name: group_table.places[rank, number]
                for number, part in enumerate(summary.parts)
            }
            open_ = {pending.index for pending in summary.pending}
            self._orders[rank] = list(_read(rank, entries, places, open_, summary.whole))
        if any(len(orders) > 1 for orders in self._orders.values()):
            for rank in [r for r, orders in self._orders.items() if orders[0].mixed]:
                del self._orders[rank]

    def parting(self, one: int, other: int) -> tuple[_Order, _Order, Parting] | None:
        """The first place at which two ranks part, on whichever threads of theirs."""
        for mine in self._orders.get(one, ()):
            theirs = self._counterpart(mine, other)
            found = None if theirs is None else self._compare(mine, theirs)
            if theirs is not None and found is not None:
                return mine, theirs, found
        return None

    def find(self, waits: OpenOperations) -> Departure | None:
        """The departure of the one rank with which all disagree who disagree at all.

        None where it only did its operations in another order.
        """
        if not 2 < len(self._orders) <= COMPARED_ORDERS:
            return None
        partings = {}
        for pair in combinations(sorted(self._orders), 2):
            found = self.parting(*pair)
            if found is not None:
                partings[pair] = found
        if len(partings) < 2:
            return None
        (odd, *others) = set.intersection(*map(set, partings)) or {None}
        if odd is None or others:
            return None
        sides = [
            (mine, theirs, found) if pair[0] == odd else (theirs, mine, found.reversed)
            for pair, (mine, theirs, found) in partings.items()
        ]
        proved = frozenset.intersection(*(found.proved | found.possible for *_, found in sides))
        proved &= frozenset().union(*(found.proved for *_, found in sides))
        possible = frozenset.intersection(*(f.proved | f.possible for *_, f in sides)) - proved
        if Edit.SWAPPED in proved or not proved | possible or not _holds_up(odd, waits):
            return None  # An order of its own may be harmless: rings of waits tell.
        mine, theirs, found = max(sides, key=lambda side: len(side[1].issued))
        here, there = self._projected(mine, theirs), self._projected(theirs, mine)
        if Edit.SWAPPED in possible and _in_one_loop(here, there, found):
            return None
        index = here[found.mine].index if found.mine < len(here) else None
        peer_index = there[found.theirs].index if found.theirs < len(there) else None
        return Departure(odd, index, theirs.rank, peer_index, proved, possible)

    def _counterpart(self, mine: _Order, other: int) -> _Order | None:
        """The thread of another rank that does what this one does."""
        return max(
            self._orders.get(other, ()),
            key=lambda theirs: len(mine.places & theirs.places) + len(mine.calls & theirs.calls),
            default=None,
        )

    def _compare(self, mine: _Order, theirs: _Order) -> Parting | None:
        here, there = self._projected(mine, theirs), self._projected(theirs, mine)
        starts = (0, 0) if mine.whole and theirs.whole else _first_common(here, there)
        if starts is None:
            return None
        common = mine.places & theirs.places
        tokens: list[list[Token]] = [
            [(one.place if one.place in common else -1, one.call) for one in order[start:]]
            for order, start in zip((here, there), starts, strict=True)
        ]
        done = _done(here[starts[0] :]), _done(there[starts[1] :])
        found = find_parting(tokens[0], tokens[1], done)
        if found is None:
            return None
        return Parting(
            found.mine + starts[0], found.theirs + starts[1], found.proved, found.possible
        )

    def _projected(self, mine: _Order, theirs: _Order) -> list[_Issued]:
        """What the other rank would do as well."""
        common, calls = mine.places & theirs.places, mine.calls & theirs.calls
        return [
            one
            for one in mine.issued
            if one.place in common or (one.call[-1] is not None and one.call in calls)
        ]


def _holds_up(rank: int, waits: OpenOperations) -> bool:
    """True if somebody waits for the rank, or it waits for those who do not come."""
    return any(
        rank in operation.absent
        or rank in operation.behind
        or (rank in operation.waiters and (operation.absent or operation.behind))
        for operation in waits.operations.values()
        if operation.seq is not None
    )


def _in_one_loop(here: list[_Issued], there: list[_Issued], parting: Parting) -> bool:
    """True if one line made both calls before: a loop over groups, which may go another way."""
    if parting.mine >= len(here) or parting.theirs >= len(there):
        return False
    mine, theirs = here[parting.mine], there[parting.theirs]
    site = mine.call[-1]
    used = {one.place for one in here[: parting.mine] if one.call[-1] == site}
    return site is not None and site == theirs.call[-1] and {mine.place, theirs.place} <= used


def _first_common(here: list[_Issued], there: list[_Issued]) -> tuple[int, int] | None:
    numbers = {(one.place, one.seq): at for at, one in reversed(list(enumerate(there)))}
    for at, one in enumerate(here):
        if (one.place, one.seq) in numbers:
            return at, numbers[one.place, one.seq]
    return None


def _done(issued: list[_Issued]) -> int:
    return next((at for at, one in enumerate(issued) if not one.done), len(issued))


def _read(
    rank: int, entries: Entries, places: dict[str, int], open_: set[int], whole: bool
) -> Iterator[_Order]:
    calls: dict[tuple[int, int, int], tuple[object, ...]] = {}
    threads: dict[str, list[_Issued]] = {}
    for row in range(len(entries)):
        if entries.is_p2p[row] or entries.seq[row] < 0:
            continue
        key = int(entries.operation[row]), int(entries.argument[row]), int(entries.stack[row])
        if key not in calls:
            op = entries.operations[key[0]].op
            site = call_site(entries.stacks[key[2]]) if key[2] >= 0 else None
            calls[key] = op, comparable_sizes(op, entries.arguments[key[1]]), site
        place = places[entries.group_names[int(entries.group[row])].name]
        threads.setdefault(thread_of(entries, row), []).append(
            _Issued(row, place, int(entries.seq[row]), calls[key], row not in open_)
        )
    for thread, issued in threads.items():
        yield _Order(
            rank,
            issued,
            frozenset(one.place for one in issued),
            frozenset(one.call for one in issued),
            whole,
            not thread,
        )
