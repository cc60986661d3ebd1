"""The one rank that left the order which all others keep: where, and by what edit of it.

All ranks run one program.  Any two are compared in what both would do: operations of groups of
both, and calls from lines that both come to.  Where all that disagree disagree with one rank, and
are more than one, that rank is the odd one, whatever group or number the job waits in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from hanglab.analyzer.flight_recorder.columns import Entries
from hanglab.analyzer.graph.thresholds import COMPARED_COLLECTIVES, COMPARED_ORDERS
from hanglab.analyzer.graph.waits import OpenOperations
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.groups import GroupTable
from hanglab.analyzer.matching.merging import MergedSummaries
from hanglab.analyzer.matching.program_order import (
    Edit,
    Parting,
    Token,
    find_fences,
    find_parting,
)
from hanglab.analyzer.matching.signatures import call_site, comparable_sizes
from hanglab.analyzer.matching.summary import thread_of


@dataclass(frozen=True)
class LeftOrder:
    """``rank`` left the common order at its entry ``index`` (None: behind its last one).

    ``peer`` is one of those who keep it, with the entry that it has there.  Where it is the only
    one, nothing tells which of the two left the order (``tied``).
    """

    rank: int
    tied: bool
    index: int | None
    peer: int
    peer_index: int | None
    proved: frozenset[Edit]
    possible: frozenset[Edit]

    @property
    def edit(self) -> Edit | None:
        """The one edit that it can be: whoever stands in one call may have the other come next."""
        if len(self.proved) != 1 or Edit.SWAPPED in self.possible:
            return None
        return next(iter(self.proved))


@dataclass(frozen=True, slots=True)
class _IssuedCall:
    index: int
    #: Index of the group, and its sequence number.
    place: int
    seq: int
    #: Numbers for operation, sizes that all members have alike and line; for the first two; and
    #: for the line, which may not be known.
    call: int
    plain: int
    site: int | None
    done: bool


@dataclass(frozen=True)
class _CallOrder:
    """Collectives that a thread of a rank issued, oldest first."""

    rank: int
    issued: list[_IssuedCall]
    #: Groups that the rank is in.
    places: frozenset[int]
    #: Those of them in which the thread called something.
    used: frozenset[int]
    #: Lines that made calls.
    sites: frozenset[int]
    #: The ring holds it from the first on.
    whole: bool


@dataclass(frozen=True)
class _Parted:
    """Two orders, and where they part by edits of the first."""

    mine: _CallOrder
    theirs: _CallOrder
    parting: Parting

    @property
    def reversed(self) -> _Parted:
        return _Parted(self.theirs, self.mine, self.parting.reversed)


class ProgramOrders:
    """Orders of all ranks of a small job, and where any two of them part."""

    def __init__(
        self, merged: MergedSummaries, group_table: GroupTable, lookup: CallLookup
    ) -> None:
        self._groups = group_table.groups
        self._orders: dict[int, list[_CallOrder]] = {}
        ranks = sorted(merged.ranks) if len(merged.ranks) <= COMPARED_ORDERS else []
        lookup.prefetch(ranks)
        numbers: dict[object, int] = {}
        for rank in ranks:
            summary, entries = merged.ranks[rank], lookup.entries(rank)
            if entries is None or any(part.active_only for part in summary.parts):
                continue
            places = {
                part.name: group_table.places[rank, number]
                for number, part in enumerate(summary.parts)
            }
            open_ = {pending.index for pending in summary.pending}
            mine = frozenset(
                place for place, group in enumerate(self._groups) if rank in group.members
            )
            self._orders[rank] = [
                _CallOrder(
                    rank,
                    issued[-COMPARED_COLLECTIVES:],
                    mine,
                    frozenset(one.place for one in issued),
                    _sites(issued),
                    summary.whole and len(issued) <= COMPARED_COLLECTIVES,
                )
                for issued in _read(entries, places, open_, numbers).values()
            ]

        told = [r for r in self._orders if merged.ranks[r].thread]
        if not told or any(len(self._orders[rank]) > 1 for rank in told):
            # Of others several threads may be in one order, whose turns prove nothing.
            self._orders = {rank: self._orders[rank] for rank in told}

    def parting(self, one: int, other: int) -> _Parted | None:
        """The first place at which two ranks part, on whichever threads of theirs."""
        for mine in self._orders.get(one, ()):
            theirs = self._counterpart(mine, other)
            found = None if theirs is None else self._compare(mine, theirs)
            if theirs is not None and found is not None:
                return _Parted(mine, theirs, found)
        return None

    def find(self, waits: OpenOperations) -> LeftOrder | None:
        """The departure of the one rank with which all disagree who disagree at all.

        None where it only did its operations in another order, which may be harmless: rings of
        waits tell.
        """
        partings = {
            pair: found
            for pair in combinations(sorted(self._orders), 2)
            if (found := self.parting(*pair)) is not None
        }
        # Orders of the ranks' own are no departures beside what is one.
        clear = {pair: one for pair, one in partings.items() if one.parting.clear}
        if len(clear) > 1 and all(
            pair in clear or Edit.SWAPPED in one.parting.proved for pair, one in partings.items()
        ):
            partings = clear
        odd = self._odd_one(partings)
        tied = odd is None and len(partings) == 1 and self._are_alone(*next(iter(partings.items())))
        if tied:
            odd = min(next(iter(partings)))
        if odd is None or not _holds_up(odd, waits):
            return None
        sides = [one if pair[0] == odd else one.reversed for pair, one in partings.items()]
        return self._departure(odd, sides, tied=tied)

    def _departure(self, odd: int, sides: list[_Parted], *, tied: bool) -> LeftOrder | None:
        """The edit on which all agree that part from ``odd``, and the calls at which they do."""
        agreed = frozenset.intersection(*(s.parting.proved | s.parting.possible for s in sides))
        proved = agreed & frozenset[Edit]().union(*(s.parting.proved for s in sides))
        possible = agreed - proved
        longest = max(sides, key=lambda side: len(side.theirs.issued))
        here, there = self._calls_at(longest)
        if Edit.SWAPPED in proved or not agreed or (tied and not proved):
            return None
        if Edit.SWAPPED in possible and (tied or self._in_one_loop(longest)):
            return None
        unheard = max(
            (self._unheard(call) for call in (here, there) if call is not None), default=0
        )
        if 1 < len(sides) <= 1 + unheard:
            return None  # As many may have gone its way.
        return LeftOrder(
            odd,
            tied,
            None if here is None else here.index,
            longest.theirs.rank,
            None if there is None else there.index,
            proved,
            possible,
        )

    def _calls_at(self, parted: _Parted) -> tuple[_IssuedCall | None, _IssuedCall | None]:
        """The calls at which two part; None for an end."""
        mine, theirs, found = parted.mine, parted.theirs, parted.parting
        here, there = self._projected(mine, theirs), self._projected(theirs, mine)
        return (
            here[found.mine] if found.mine < len(here) else None,
            there[found.theirs] if found.theirs < len(there) else None,
        )

    def _in_one_loop(self, parted: _Parted) -> bool:
        """True if one line made both calls before: a loop over groups, which may go another way."""
        mine, theirs = self._calls_at(parted)
        if mine is None or theirs is None or mine.site is None or mine.site != theirs.site:
            return False
        earlier = parted.mine.issued[: parted.mine.issued.index(mine)]
        used = {one.place for one in earlier if one.site == mine.site}
        return mine.place != theirs.place and {mine.place, theirs.place} <= used

    def _odd_one(self, partings: dict[tuple[int, int], _Parted]) -> int | None:
        """The one rank with which all disagree; of two the one that alone made a call."""
        if len(partings) > 1:
            common = set.intersection(*map(set, partings))
            return common.pop() if len(common) == 1 else None
        for one in partings.values():
            for side in (one, one.reversed):
                call, _ = self._calls_at(side)
                if side.parting.proved == {Edit.ADDED} and call is not None:
                    group, rank = self._groups[call.place], side.mine.rank
                    progress = [group.progress.get(m) for m in group.members if m != rank]
                    if len(progress) > 1 and all(
                        p is not None and p.has_entered(call.seq) is False for p in progress
                    ):
                        return rank
        return None

    def _unheard(self, call: _IssuedCall) -> int:
        """Members of a call's group of whose order nothing is known."""
        group = self._groups[call.place]
        return group.unlisted + sum(member not in self._orders for member in group.members)

    def _are_alone(self, pair: tuple[int, int], parted: _Parted) -> bool:
        """True if no third rank is in the groups of the calls at which two part."""
        calls = [call for call in self._calls_at(parted) if call is not None]
        return bool(calls) and all(set(self._groups[c.place].members) <= set(pair) for c in calls)

    def passed_by(self, rank: int, others: Iterable[int]) -> tuple[int, ...]:
        """Ranks of ``others`` that did all that a rank did, and then what it has yet to do."""
        return tuple(other for other in others if self._is_further(other, rank))

    def disputed_by(self, rank: int, others: Iterable[int]) -> tuple[int, ...]:
        """Ranks of ``others`` that part from a rank by one call too many, or too few."""
        found = {other: self.parting(rank, other) for other in others}
        return tuple(r for r, one in found.items() if one is not None and one.parting.clear)

    def _is_further(self, one: int, other: int) -> bool:
        for mine in self._orders.get(one, ()):
            theirs = self._counterpart(mine, other)
            if theirs is None or not (mine.whole and theirs.whole):
                return False
            sizes = [len(self._projected(*pair)) for pair in ((mine, theirs), (theirs, mine))]
            if self._compare(mine, theirs) is not None:
                return False
            if sizes[0] > sizes[1]:
                return True
        return False

    def is_swap(self, one: int, other: int) -> bool | None:
        """True if two calls of one rank in another order explain where two part.

        None where the two do not part, or what would tell has yet to come.
        """
        found = self.parting(one, other)
        if found is None:
            return None
        if Edit.SWAPPED in found.parting.proved or self._in_one_loop(found):
            return True
        unknown = Edit.SWAPPED in found.parting.possible or not found.parting.proved
        return None if unknown else False

    def _counterpart(self, mine: _CallOrder, other: int) -> _CallOrder | None:
        """The thread of another rank that does what this one does."""

        def common(theirs: _CallOrder) -> int:
            return len(mine.used & theirs.used) + len(mine.sites & theirs.sites)

        return max(filter(common, self._orders.get(other, ())), key=common, default=None)

    def _compare(self, mine: _CallOrder, theirs: _CallOrder) -> Parting | None:
        here, there = self._projected(mine, theirs), self._projected(theirs, mine)
        tokens = self._tokens(mine, theirs, here, there)
        if tokens is None:
            return None
        starts, first, second = tokens
        here, there = here[starts[0] :], there[starts[1] :]
        done = _done(here), _done(there)
        found = find_parting(first, second, done, self._fences)
        while (
            found is not None
            and _met(found, here, there)
            and second[found.theirs] != first[found.mine]
        ):
            second[found.theirs] = first[found.mine]
            found = find_parting(first, second, done, self._fences)
        if found is None:
            return None
        return Parting(
            found.mine + starts[0], found.theirs + starts[1], found.proved, found.possible
        )

    def _tokens(
        self,
        mine: _CallOrder,
        theirs: _CallOrder,
        here: list[_IssuedCall],
        there: list[_IssuedCall],
    ) -> tuple[tuple[int, int], list[Token], list[Token]] | None:
        """The first place known on both sides of two orders, and their operations from there on."""
        starts = (0, 0) if mine.whole and theirs.whole else _first_common(here, there)
        if starts is None:
            return None
        common = mine.places & theirs.places
        # Where one of the two has no lines, nothing but the rest can be compared.
        lines = bool(mine.sites and theirs.sites)

        def named(order: list[_IssuedCall]) -> list[Token]:
            return [
                (one.place if one.place in common else -1, one.call if lines else one.plain)
                for one in order
            ]

        first, second = named(here[starts[0] :]), named(there[starts[1] :])
        return starts, first, second

    @cached_property
    def _fences(self) -> frozenset[Token]:
        """Operations that most ranks with orders of their own have behind each of them."""
        found: Counter[Token] = Counter()
        pairs = 0
        for one, other in combinations(sorted(self._orders), 2):
            for mine in self._orders[one]:
                theirs = self._counterpart(mine, other)
                if theirs is None:
                    continue
                here, there = self._projected(mine, theirs), self._projected(theirs, mine)
                tokens = self._tokens(mine, theirs, here, there)
                if tokens is not None:
                    starts, first, second = tokens
                    done = _done(here[starts[0] :]), _done(there[starts[1] :])
                    fences = find_fences(first, second, done)
                    found.update(fences)
                    pairs += bool(fences)
        return frozenset(token for token, count in found.items() if 2 * count > pairs)

    def _projected(self, mine: _CallOrder, theirs: _CallOrder) -> list[_IssuedCall]:
        """Operations that the other rank would do as well."""
        common, sites = mine.places & theirs.places, mine.sites & theirs.sites
        return [one for one in mine.issued if one.place in common or one.site in sites]


def _met(found: Parting, here: list[_IssuedCall], there: list[_IssuedCall]) -> bool:
    """True if two calls differ in their lines alone, and are one operation.

    A branch of one rank that makes the call of its peers is no edit; one too many, or too few,
    shows in what follows: its lines differ as well, until the end.
    """
    if found.mine >= len(here) or found.theirs >= len(there):
        return False
    mine, theirs = here[found.mine], there[found.theirs]
    one = (mine.place, mine.seq, mine.plain) == (theirs.place, theirs.seq, theirs.plain)
    edits = found.proved or found.possible
    return one and mine.call != theirs.call and Edit.CHANGED in edits


def _holds_up(rank: int, waits: OpenOperations) -> bool:
    """True if the rank waits, or somebody waits for it."""
    return rank in waits.by_rank or any(
        rank in operation.absent for operation in waits.operations.values()
    )


def _first_common(here: list[_IssuedCall], there: list[_IssuedCall]) -> tuple[int, int] | None:
    numbers = {(one.place, one.seq): at for at, one in reversed(list(enumerate(there)))}
    for at, one in enumerate(here):
        if (one.place, one.seq) in numbers:
            return at, numbers[one.place, one.seq]
    return None


def _done(issued: list[_IssuedCall]) -> int:
    return next((at for at, one in enumerate(issued) if not one.done), len(issued))


def _read(
    entries: Entries, places: dict[str, int], open_: set[int], numbers: dict[object, int]
) -> dict[str, list[_IssuedCall]]:
    """Collectives by the thread that issued them; ``numbers`` stand for calls of all ranks."""

    def number(one: object) -> int:
        return numbers.setdefault(one, len(numbers))

    calls: dict[tuple[int, int, int], tuple[int, int, int | None]] = {}
    threads: dict[str, list[_IssuedCall]] = {}
    for row in np.flatnonzero(~entries.is_p2p & (entries.seq >= 0)).tolist():
        key = int(entries.operation[row]), int(entries.argument[row]), int(entries.stack[row])
        if key not in calls:
            op = entries.operations[key[0]].op
            site = call_site(entries.stacks[key[2]]) if key[2] >= 0 else None
            plain = op, comparable_sizes(op, entries.arguments[key[1]])
            line = None if site is None else number(site)
            calls[key] = number((*plain, site)), number(plain), line
        place = places[entries.group_names[int(entries.group[row])].name]
        threads.setdefault(thread_of(entries, row), []).append(
            _IssuedCall(row, place, int(entries.seq[row]), *calls[key], row not in open_)
        )
    return threads


def _sites(issued: list[_IssuedCall]) -> frozenset[int]:
    return frozenset(one.site for one in issued if one.site is not None)
