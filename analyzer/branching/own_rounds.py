"""The branch that a rank took otherwise than in all its rounds before, by its own record alone.

Ranks of different parts, as a pipeline's stages, make no calls that could be held against each
other.  But each repeats its own: the round in which its calls were others for the first time has
its branches held against those before.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from hanglab.analyzer.branching.call_sites import ProgramCall
from hanglab.analyzer.branching.program_graph import NotFollowed, ProgramPlace
from hanglab.analyzer.branching.taken_branches import LONE
from hanglab.recorder.case import branch_layout as layout
from hanglab.recorder.case.branch_trace import BranchPlace, TakenBranch

#: Rounds and times beyond which what a rank did the same each time is its habit.
_ROUNDS = 3


class Departure(NamedTuple):
    """A place, the way that a rank took there for the first time, and the one of all times before.

    Of ways that are seen alone, and were not taken, the kind is 0.
    """

    place: BranchPlace
    taken: int
    usual: int


class OwnRounds:
    """The departures of one rank, and the ways that it went at each place."""

    def __init__(
        self,
        sites: Sequence[ProgramCall],
        branches: Sequence[TakenBranch],
        loops: Collection[BranchPlace],
    ) -> None:
        self.departures = departures(sites, branches, loops)
        self._all = {one for follow in self.departures for one in follow}
        self._kinds: defaultdict[BranchPlace, set[int]] = defaultdict(set)
        for branch in branches:
            self._kinds[branch.place].add(branch.kind)

    def went(self, departure: Departure) -> bool:
        """True if the rank has gone now the one way and now the other, too.

        Who always went the one is of another part of the program.
        """
        if departure in self._all:
            return True
        place, taken, usual = departure
        if not taken or taken in (layout.LOOP_AGAIN, layout.LOOP_LEFT):
            return False  # as loops do
        return {taken, usual or taken} <= self._kinds[place]

    def stayed(self, departure: Departure) -> bool:
        """True if the rank has come there and gone the usual way each time."""
        return not self.went(departure) and departure.usual in self._kinds[departure.place]


def the_departure(
    ranks: Mapping[int, OwnRounds], culprits: Collection[int]
) -> tuple[Departure, list[int]]:
    """The one departure that parted culprits from the others, and who went there.

    Either culprits have gone it, or all others that came there and the culprits not.  What all
    have gone that came there is done by right, unless it is one rank alone.  Raises NotFollowed.
    """
    found: dict[BranchPlace, tuple[Departure, list[int]]] = {}
    for follow in (follow for own in ranks.values() for follow in own.departures):
        # The first that parted them has those behind it for its consequences.
        for departure in follow:
            went = [rank for rank, own in ranks.items() if own.went(departure)]
            stayed = [rank for rank, own in ranks.items() if own.stayed(departure)]
            of_culprits = set(went) <= set(culprits) and (bool(stayed) or len(went) == 1)
            of_others = bool(stayed) and set(stayed) <= set(culprits)
            if of_culprits or (of_others and not set(went) & set(culprits)):
                found[departure.place] = departure, went
                break
    if len(found) != 1:
        raise NotFollowed("no one branch was taken otherwise than in all rounds before")
    return next(iter(found.values()))


class _MadeCall(NamedTuple):
    operation: str
    place: ProgramPlace | None
    group: str


class _WentWay(NamedTuple):
    place: BranchPlace
    kind: int


_Event = _MadeCall | _WentWay


def departures(
    sites: Sequence[ProgramCall], branches: Sequence[TakenBranch], loops: Collection[BranchPlace]
) -> list[list[Departure]]:
    """Of each round with calls as in none before, the ways that the rank had never gone on there.

    Such that follow on each other without a usual one between are one list.

    ``loops`` are those around its calls.  Empty where it has made too few rounds, or where what
    sent it elsewhere left no branch.
    """
    rounds = _rounds(sites, branches, loops)
    usual = _Usual()
    seen: set[tuple[_MadeCall, ...]] = set()
    found: list[list[Departure]] = []
    for number, events in enumerate(rounds):
        calls = tuple(event for event in events if isinstance(event, _MadeCall))
        is_last = number == len(rounds) - 1
        known = calls in seen or (is_last and any(one[: len(calls)] == calls for one in seen))
        if number >= _ROUNDS and not known:
            found += usual.left_by(_up_to_new_call(events, seen))
        usual.add(events)
        seen.add(calls)
    return found


def _up_to_new_call(
    events: Sequence[_Event], seen: Collection[tuple[_MadeCall, ...]]
) -> Sequence[_Event]:
    """Events of a round up to the call by which it is like none before: there it had parted."""
    at = [i for i, event in enumerate(events) if isinstance(event, _MadeCall)]
    calls = tuple(events[i] for i in at)
    for number, i in enumerate(at, 1):
        if all(one[:number] != calls[:number] for one in seen):
            return events[: i + 1]
    return events


class _Usual:
    """The events that followed on each in the rounds so far, and the rounds that each loop had."""

    def __init__(self) -> None:
        self._after: defaultdict[_Event, Counter[_Event]] = defaultdict(Counter)
        self._at: defaultdict[BranchPlace, Counter[int]] = defaultdict(Counter)
        self._lengths: defaultdict[BranchPlace, Counter[int]] = defaultdict(Counter)

    def add(self, events: Sequence[_Event]) -> None:
        for before, event in pairwise(events):
            self._after[before][event] += 1
            if isinstance(event, _WentWay):
                self._at[event.place][event.kind] += 1
        for place, length in _lengths(events):
            self._lengths[place][length] += 1

    def left_by(self, events: Sequence[_Event]) -> list[list[Departure]]:
        """Ways of a round that none before went on from where they were; none if one is not seen.

        Rounds of a loop are told where no branch tells more.
        """
        found: list[list[Departure]] = []
        apart = False
        for before, event in pairwise(events):
            after = self._after.get(before, Counter())
            if after.total() >= _ROUNDS and event not in after:
                departure = _departure(event, after)
                if departure is None:
                    return found
                found.append([departure])
                apart = True
            elif after:
                apart = False
            elif isinstance(event, _WentWay) and event.kind not in LONE and apart:
                # It was never there by that way, but by another one.
                here = self._at.get(event.place, Counter())
                if here.total() >= _ROUNDS and event.kind not in here:
                    found[-1].append(Departure(event.place, event.kind, next(iter(here))))
        for place, length in () if found else _lengths(events):
            usual = self._lengths[place]
            if usual.total() >= _ROUNDS and len(usual) == 1 and length not in usual:
                ways = (layout.LOOP_LEFT, layout.LOOP_AGAIN)
                fewer = length < next(iter(usual))
                return [[Departure(place, ways[not fewer], ways[fewer])]]
        return found


def _departure(event: _Event, after: Collection[_Event]) -> Departure | None:
    ways = [one for one in after if isinstance(one, _WentWay)]
    if isinstance(event, _WentWay):
        here = [one.kind for one in ways if one.place == event.place]
        if here:
            return Departure(event.place, event.kind, here[0])
        if event.kind in LONE:
            return Departure(event.place, event.kind, 0)
    if len(after) == len(ways) == 1 and ways[0].kind in LONE:
        return Departure(ways[0].place, 0, ways[0].kind)
    return None


def _made_call(site: ProgramCall) -> _MadeCall:
    place = site.chain[-1] if site.chain else None
    return _MadeCall(site.operation, place, "" if site.key is None else site.key[0])


def _lengths(events: Sequence[_Event]) -> Iterator[tuple[BranchPlace, int]]:
    """Loops of a round that came to their end, each with the rounds that it had."""
    begun: Counter[BranchPlace] = Counter()
    for event in events:
        if isinstance(event, _WentWay) and event.kind == layout.LOOP_AGAIN:
            begun[event.place] += 1
        elif isinstance(event, _WentWay) and event.kind == layout.LOOP_LEFT:
            yield event.place, begun.pop(event.place, 0)


def _rounds(
    sites: Sequence[ProgramCall], branches: Sequence[TakenBranch], loops: Collection[BranchPlace]
) -> list[list[_Event]]:
    """Calls and branches of each round of the outermost loop that was begun often, in order.

    The last round may be under way.
    """
    begun = Counter(b.place for b in branches if b.place in loops and b.kind == layout.LOOP_AGAIN)
    often = [place for place, times in begun.items() if times > _ROUNDS]
    if not often:
        return []
    loop = min(often, key=lambda place: begun[place])
    timed: list[tuple[int, _Event]] = [(b.at_ns, _WentWay(b.place, b.kind)) for b in branches]
    timed += [(site.at_ns, _made_call(site)) for site in sites if site.at_ns is not None]
    rounds: list[list[_Event]] = []
    inside = False
    for _, event in sorted(timed, key=lambda one: one[0]):
        if isinstance(event, _WentWay) and event.place == loop:
            if inside:
                rounds[-1].append(_WentWay(loop, 0))  # the round's end
            inside = event.kind == layout.LOOP_AGAIN
            if inside:
                rounds.append([])
        if inside:
            rounds[-1].append(event)
    return rounds
