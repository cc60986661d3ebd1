"""The step that one rank alone took, from a place of its program from which it went on otherwise.

A fault is an edit of what a rank does, so that it comes from one line to another as nobody ever
does.  Of several ranks that may have held each other up it is the one that did; the others did what
they, or their peers, had done before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import NamedTuple

from hanglab.analyzer.graph.issued_orders import IssuedCall, IssuedOrder
from hanglab.analyzer.graph.line_paths import Path, path_of
from hanglab.analyzer.graph.thresholds import FOLLOWING_PLACES, KNOWN_ROUNDS
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.matching.program_order import Token


@dataclass(frozen=True)
class LoneStep:
    """A call to which its rank alone came from another one.

    ``usual`` is the one to which it always came from there before; None where it never did.
    """

    rank: int
    call: Call | None
    before: Call | None
    usual: Call | None


class LoneSteps:
    """Steps of the ranks of a small job, whose calls have lines.

    ``orders`` are asked for when they are needed, and ``shown`` for the call of a rank's entry.
    """

    def __init__(
        self,
        orders: Callable[[], Mapping[int, Sequence[IssuedOrder]]],
        shown: Callable[[int, int], Call | None],
    ) -> None:
        self._read_orders = orders
        self._shown = shown

    def taken_by_one_of(self, ranks: Collection[int], *, uneven: bool = False) -> LoneStep | None:
        """The step of the one of ``ranks`` that took such a one.

        None where several did, or nobody, or where not all that they did is known.  Unless
        ``uneven``, who left out messages of which there may be none took no such step.
        """
        if not all(self._is_told(rank) for rank in ranks):
            return None
        found = {rank: step for rank in ranks for step in self._taken_by(rank, uneven=uneven)}
        return next(iter(found.values())) if len(found) == 1 else None

    def came_anew(self, ranks: Collection[int]) -> list[int]:
        """Those of ``ranks`` that never came so to what they wait in; all, if not all is known."""
        if not all(len(self._orders.get(rank, ())) == 1 for rank in ranks):
            return [*ranks]
        return [rank for rank in ranks if _comes_anew(self._orders[rank][0])]

    @cached_property
    def _orders(self) -> Mapping[int, Sequence[IssuedOrder]]:
        return self._read_orders()

    def _is_told(self, rank: int) -> bool:
        orders = self._orders.get(rank, ())
        return bool(orders) and all(c.site is not None for one in orders for c in one.issued)

    @cached_property
    def _paths(self) -> list[tuple[IssuedOrder, Path]]:
        """Paths by line, and by line and group."""
        known = [one for rank, mine in self._orders.items() if self._is_told(rank) for one in mine]
        return [(one, path_of(one, name)) for one in known if one.issued for name in _NAMES]

    @cached_property
    def _times(self) -> dict[tuple[Token, Token], Counter[int]]:
        """Number of times that each rank came from one place to another."""
        found: dict[tuple[Token, Token], Counter[int]] = {}
        for _, path in self._paths:
            for step in pairwise(path.tokens):
                found.setdefault(step, Counter())[path.rank] += 1
        return found

    @cached_property
    def _uneven(self) -> frozenset[Token]:
        """Places of messages to which a rank comes with others, or other ones, than before."""
        batches: dict[tuple[Token, int], set[tuple[int, ...]]] = {}
        for order in (one for mine in self._orders.values() for one in mine):
            for place, run in groupby(order.issued, _line):
                made = [*run]
                if made[0].message:
                    plain = tuple(sorted(one.numbers.plain for one in made))
                    batches.setdefault((place, order.rank), set()).add(plain)
        return frozenset(place for (place, _), found in batches.items() if len(found) > 1)

    def _taken_by(self, rank: int, *, uneven: bool) -> Iterator[LoneStep]:
        """Lone steps to a rank's latest calls, up to the first that is open."""
        for order, path in self._paths:
            if order.rank != rank:
                continue
            end = next((one.index for one in order.issued if not one.done), order.issued[-1].index)
            until = sum(call is None or call.index <= end for call in path.calls)
            for at in range(max(1, until - FOLLOWING_PLACES), until):
                if self._is_lone(path, at, uneven=uneven):
                    places = (at, at - 1, self._usual(path, at))
                    yield LoneStep(rank, *(self._call(path, place) for place in places))

    def _is_lone(self, path: Path, at: int, *, uneven: bool) -> bool:
        """True if nobody else ever came to a place from that in front, and it is no new phase.

        The rank had always gone on to one other from there, or came to one place twice at once.
        """
        before, place = path.tokens[at - 1 : at + 1]
        if self._times[before, place] != {path.rank: 1}:
            return False
        past = path.tokens[:at]
        again = before == place and not isinstance(place, _GroupPlace)
        if again and self._is_made_by_all(path.rank, path.calls[at]):
            return False  # It is none too many: the others made it, too, wherever they came from.
        if again and not {*path.tokens[at + 1 : at + 2]} <= {*path.tokens[:at]}:
            return False  # It goes on to a new phase, before which a loop may end otherwise.
        earlier = Counter(then for one, then in pairwise(past) if one == before)
        if len(earlier) > 1 or not (
            again
            or (earlier and _is_known(past, place, *earlier))
            or self._is_other_operation(place, *earlier)
        ):
            return False
        if not again and self._is_furthest(path.rank, before, earlier):
            return False  # The others may come to the same once they have done as many rounds.
        if before in earlier and not self._ends_run_early(path, at):
            return False  # A loop has ended, as it does after so many rounds.
        followed = {
            then: ranks.keys() - {path.rank} for (one, then), ranks in self._times.items()
            if one == before and (again or then in earlier)
        }  # fmt: skip
        if not (uneven or self._uneven.isdisjoint(earlier or followed)):
            return False  # Of messages that data give there may be none.
        went_on = frozenset[int]().union(*followed.values())
        return earlier.total() + len(went_on) >= KNOWN_ROUNDS

    def _is_made_by_all(self, rank: int, call: IssuedCall | None) -> bool:
        """True if all others of its group have made a collective of that number and line, too."""
        if call is None:
            return False
        others = [
            one
            for other, mine in self._orders.items()
            for one in mine
            if other != rank and call.place in one.places
        ]
        return bool(others) and all(any(map(call.is_one_with, one.issued)) for one in others)

    def _is_furthest(self, rank: int, before: Token, earlier: Counter[Token]) -> bool:
        """True if several went on from a place as the rank did until then, none of them as often.

        A loop ends at some round, for all alike.
        """
        times = [self._times[before, then] for then in earlier]
        others = Counter[int]()
        for one in times:
            others += one
        del others[rank]
        return bool(others) and max(others.values()) <= earlier.total()

    def _ends_run_early(self, path: Path, at: int) -> bool:
        """True if others came to the place in front several times at once, and each time more."""
        *_, (before, run) = _runs(path.tokens[:at])
        others = [_runs(one.tokens)[:-1] for _, one in self._paths if one.rank != path.rank]
        ended = [length for runs in others for token, length in runs if token == before]
        # Of one other run nobody knows whether it is too long.
        return len(ended) >= KNOWN_ROUNDS and run < min(ended)

    def _is_other_operation(self, place: Token, usual: Token = None) -> bool:
        """True if a place is on the line of the usual one, which called nothing else in any rank.

        Not where one line makes several calls, such as that of a function for all of them.
        """
        if not (isinstance(place, _LinePlace) and isinstance(usual, _LinePlace)):
            return False
        return place.site == usual.site and self._at_site[place.site] == {place, usual}

    @cached_property
    def _at_site(self) -> dict[int | None, set[_LinePlace]]:
        found: dict[int | None, set[_LinePlace]] = {}
        for _, path in self._paths:
            for token in path.tokens:
                if isinstance(token, _LinePlace):
                    found.setdefault(token.site, set()).add(token)
        return found

    def _usual(self, path: Path, at: int) -> int | None:
        """The place that the rank came to before from that in front of one; None if it did not."""
        before = path.tokens[at - 1]
        return next((then for then in range(1, at) if path.tokens[then - 1] == before), None)

    def _call(self, path: Path, at: int | None) -> Call | None:
        call = None if at is None else path.calls[at]
        return None if call is None else self._shown(path.rank, call.index)


def _runs(tokens: Sequence[Token]) -> list[tuple[Token, int]]:
    """Places of a path, each with the number of times that it was come to at once."""
    return [(token, len([*run])) for token, run in groupby(tokens)]


def _comes_anew(order: IssuedOrder) -> bool:
    """True if a thread never came from one call to the next so, among those that it waits in.

    Nor, to a collective, to the one before it: it may have left one out in front of that.  A batch
    is all messages of one line that follow each other.
    """
    calls = order.issued
    first = next((at for at, one in enumerate(calls) if not one.done), len(calls))
    end = first + 1
    while end < len(calls) and calls[end].message and calls[end].site == calls[first].site:
        end += 1
    names: list[Token | None] = [(one.place, one.numbers.own) for one in calls[:end]]
    steps = [*pairwise([None, *names])]
    last = first - (0 < first < len(calls) and not calls[first].message)
    return not {*steps[last:]} <= {*steps[:last]}


def _is_known(past: Sequence[Token], place: Token, usual: Token) -> bool:
    """True if a thread had its rounds before it came to a place, and came to that from one other.

    A loop within a loop ends at a place of the first round.  On the usual line, in another group,
    it is that call, if the rank had left that one's group before, and come back to it.
    """
    if isinstance(place, _GroupPlace) and isinstance(usual, _GroupPlace):
        groups = [one.group for one in past if isinstance(one, _GroupPlace)]
        runs = [one for one, _ in groupby(groups)]
        return place.line == usual.line and runs.count(usual.group) > 1
    came = [one for one, then in pairwise(past) if then == place]
    return past.count(place) > 1 and len({*came[-past.count(place) + 1 :]}) == 1


class _LinePlace(NamedTuple):
    message: bool
    site: int | None
    #: The messages of a batch come in any order, and are one.
    name: int | None


class _GroupPlace(NamedTuple):
    line: _LinePlace
    group: int


def _line(one: IssuedCall) -> _LinePlace:
    return _LinePlace(one.message, one.site, None if one.message else one.numbers.lined)


def _line_and_group(one: IssuedCall) -> Token:
    return _GroupPlace(_line(one), one.place)


_NAMES = (_line, _line_and_group)
