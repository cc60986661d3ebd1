"""The one rank that went on from a call as nobody ever does, while others went on alike.

A place of a program is a line, what it calls there, and what came before it.  Ranks that came to
one place went on to one other, whatever groups and peers they have: who alone went on to another
left a collective out there, or made one more.  Messages of one line that follow each other are one
place, as each rank has as many as it has peers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple

from hanglab.analyzer.graph.issued_orders import IssuedCall, IssuedOrder
from hanglab.analyzer.graph.left_order import LeftOrder
from hanglab.analyzer.graph.line_paths import Path, path_of
from hanglab.analyzer.graph.thresholds import (
    FOLLOWING_PLACES,
    KNOWN_ROUNDS,
    MOST_SUCCESSORS,
    PRECEDING_PLACES,
    SUCCESSOR_VOTERS,
)
from hanglab.analyzer.matching.program_order import Edit, Token, find_first_parting


class _PathPlace(NamedTuple):
    """A place of a path, by its index there, or what has yet to come behind its last one."""

    path: Path
    at: int

    @property
    def is_end(self) -> bool:
        return self.at == len(self.path.tokens)

    @property
    def token(self) -> Token:
        return self.path.tokens[self.at]

    @property
    def call(self) -> IssuedCall | None:
        return self.path.calls[self.at]

    @property
    def step(self) -> tuple[Token, Token]:
        """The place, and the one before it."""
        return self.path.tokens[self.at - 1], self.token

    @property
    def following(self) -> list[Token]:
        return self.path.tokens[self.at : self.at + FOLLOWING_PLACES]

    @property
    def next_collective(self) -> _PathPlace | None:
        later = (_PathPlace(self.path, at) for at in range(self.at + 1, len(self.path.tokens)))
        return next((one for one in later if _is_collective(one)), None)

    @property
    def round(self) -> int | None:
        """Number of times it came to the place in front; None where its ring begins later."""
        return self.path.tokens[: self.at].count(self.step[0]) if self.path.is_whole else None

    def is_of_another_round(self, other: _PathPlace) -> bool:
        """True if by its number another rank came from another call of the group than this one."""
        mine, theirs = self.path.calls[self.at - 1], other.path.calls[other.at - 1]
        if mine is None or theirs is None or mine.message or mine.place != theirs.place:
            return False
        return mine.seq != theirs.seq

    def is_past(self, other: _PathPlace) -> bool:
        """True if by its number the rank has made another's collective, or a later one, before."""
        call = other.call
        return call is not None and any(
            one is not None and one.place == call.place and one.seq >= call.seq
            for one in self.path.calls[: self.at]
            if not call.message
        )

    def shares_with(self, other: _PathPlace) -> int:
        """Number of places in front of both that are alike."""
        most = min(self.at, other.at, PRECEDING_PLACES)
        mine, theirs = self.path.tokens, other.path.tokens
        return next(
            (n for n in range(most) if mine[self.at - 1 - n] != theirs[other.at - 1 - n]), most
        )


def find_unusual_successor(
    orders: Mapping[int, Sequence[IssuedOrder]], members: Sequence[Collection[int]]
) -> LeftOrder | None:
    """The departure of the one rank that left a collective out, or made one more, by its places.

    ``members`` are those of each group, by its index.
    """
    places: dict[tuple[Token, Token], list[_PathPlace]] = {}
    after: dict[Token, list[_PathPlace]] = {}
    paths = _paths(orders)
    for path in paths:
        for at in range(1, len(path.tokens) + 1):
            place = _PathPlace(path, at)
            after.setdefault(path.tokens[at - 1], []).append(place)
            if not place.is_end:
                places.setdefault(place.step, []).append(place)
    several = Counter(before for before, _ in places)
    once = [
        found[0]
        for (before, _), found in places.items()
        if len(found) == 1 and several[before] <= MOST_SUCCESSORS
    ]
    unusual = [(one, others) for one in once if (others := _nearest(one, after[one.step[0]]))]
    # Where several take orders of their own nobody is the exception.
    if len({one.path.rank for one, theirs in unusual if _are_collectives(one, theirs[0])}) > 1:
        return None
    departed: dict[int, LeftOrder] = {}
    for one, others in sorted(unusual, key=lambda two: (two[0].path.rank, two[0].at)):
        if len({other.path.rank for other in others}) <= 1 + _unheard(
            (one, *others), paths, members
        ):
            continue  # As many may have gone its way.
        left = _departure(one, others, members, places)
        if left is not None:
            departed.setdefault(left.rank, left)
    return next(iter(departed.values())) if len(departed) == 1 else None


def _paths(orders: Mapping[int, Sequence[IssuedOrder]]) -> list[Path]:
    """Paths of the threads of which every call is known, as far as all tell of theirs alike."""
    threads = [one for mine in orders.values() for one in mine if one.issued]
    threads = [one for one in threads if all(call.known for call in one.issued)]
    lined, sized = all(one.sites for one in threads), all(one.sized for one in threads)
    if not (lined or sized):
        return []

    def name(one: IssuedCall) -> Token:
        if one.message:
            return one.message, one.site if lined else None
        numbers = one.numbers
        return one.message, (numbers.call if sized else numbers.lined) if lined else numbers.plain

    return [path_of(order, name) for order in threads]


def _departure(
    mine: _PathPlace,
    others: Sequence[_PathPlace],
    members: Sequence[Collection[int]],
    steps: Mapping[tuple[Token, Token], Collection[_PathPlace]],
) -> LeftOrder | None:
    """The departure at a place to which nobody else came from there, but ``others`` to one.

    ``steps`` are all places by their token, and the one before it.
    """
    edit = _edit(mine, others, members, steps)
    if edit is None:
        return None
    if edit is Edit.LEFT_OUT and not any(_has_part(mine.path.rank, o, members) for o in others):
        return None  # It has no part in what the others call there.
    longest = max(others, key=lambda one: len(one.following))
    assert mine.call is not None and longest.call is not None
    return LeftOrder(
        mine.path.rank,
        tied=False,
        index=mine.call.index,
        peer=longest.path.rank,
        peer_index=longest.call.index,
        proved=frozenset({edit}),
        possible=frozenset(),
    )


def _edit(
    mine: _PathPlace,
    others: Sequence[_PathPlace],
    members: Sequence[Collection[int]],
    steps: Mapping[tuple[Token, Token], Collection[_PathPlace]],
) -> Edit | None:
    """The edit by which a rank went on otherwise than others, of a collective.

    One of them shows it by what follows.  Or nothing follows yet: who has left something out makes
    that call no more, and who makes one twice at once has one too many.
    """
    theirs, again = others[0], mine.step[0] == mine.token
    found = [find_first_parting(mine.following, one.following) for one in others]
    partings = [one for one in found if one is not None]
    proved = frozenset[Edit]().union(*(one.proved for one in partings))
    if Edit.SWAPPED in proved or any(_is_one_call(mine, one) for one in others):
        return None
    # What it is a member of: of another replica's calls it has made none.
    shared = [one for one in others if _has_part(mine.path.rank, one, members)]
    # Others made it in other rounds as well.
    now = [one for one in shared if one.round is not None and one.round == mine.round]
    made = any(map(mine.is_past, now)) if now else all(map(mine.is_past, shared))
    made = made or any(_makes_later(mine, one) for one in shared)
    may_lack = _is_collective(theirs) and not made and _is_replicated(others, shared, members)
    if may_lack and _may_come_behind_messages(mine, theirs, steps):
        return None
    if may_lack and Edit.LEFT_OUT in proved:
        return Edit.LEFT_OUT
    able = {one.path.rank for one in others if _may_come_to(one.path, mine, members)}
    if len(able) < SUCCESSOR_VOTERS:
        return None
    possible = frozenset.intersection(*(one.proved | one.possible for one in partings))
    # Who waits in a message may wait for one that its other end has left out, unless the rank had
    # the collective there each time before.
    before = list(pairwise(mine.path.tokens[: mine.at])).count(theirs.step)
    told = _is_collective(mine) or before >= KNOWN_ROUNDS
    if may_lack and not again:
        jumps = _is_jump(mine, steps) and any(_comes_behind(mine, one) for one in others)
        passes = _is_collective(mine) and _comes_next(mine, others)
        if jumps or passes or (told and Edit.LEFT_OUT in possible):
            return Edit.LEFT_OUT
    # Whoever has no message to send just then goes on to the collective behind it by right.
    if _are_collectives(mine, theirs) and not any(_is_made_by(one.path, mine) for one in others):
        # What comes next but one may have come first.
        twice = again and (theirs.token, mine.token) not in steps
        if Edit.ADDED in proved or (twice and Edit.ADDED in possible):
            return Edit.ADDED
    return None


def _is_jump(mine: _PathPlace, steps: Mapping[tuple[Token, Token], Collection[_PathPlace]]) -> bool:
    """True if several others came to the place of a rank, none of them from where it came from."""
    came = {one.path.rank for (_, to), found in steps.items() if to == mine.token for one in found}
    return len(came - {mine.path.rank}) >= SUCCESSOR_VOTERS


def _comes_next(mine: _PathPlace, others: Sequence[_PathPlace]) -> bool:
    """True if the others went on from there to a rank's place at once, however often they come.

    A loop within the rounds may have more rounds, or fewer, each time.
    """
    then = [one.following[1] for one in others if len(one.following) > 1]
    return bool(then) and all(token == mine.token for token in then)


def _comes_behind(mine: _PathPlace, theirs: _PathPlace) -> bool:
    """True if messages alone, of which others may have none, led another to a rank's message."""
    path = theirs.path
    later = (_PathPlace(path, at) for at in range(theirs.at + 1, len(path.tokens)))
    messages = takewhile(lambda one: not _is_collective(one), later)
    return any(one.token == mine.token for one in messages)


def _is_replicated(
    others: Sequence[_PathPlace],
    shared: Sequence[_PathPlace],
    members: Sequence[Collection[int]],
) -> bool:
    """True if the groups of the calls that ``others`` made are those of the ones shared, or apart.

    Groups that overlap are no replicas: who is in one of them need not call what another calls.
    """
    places = {one.call.place for one in others if one.call is not None and not one.call.message}
    own = {one.call.place for one in shared if one.call is not None}
    return all(set(members[one]).isdisjoint(members[two]) for one in places - own for two in own)


def _has_part(rank: int, place: _PathPlace, members: Sequence[Collection[int]]) -> bool:
    call = place.call
    return call is not None and not call.message and rank in members[call.place]


def _is_made_by(path: Path, place: _PathPlace) -> bool:
    """True if a rank has made the very collective of a place, and the next one behind it as well.

    From whichever line.  One too many meets a later one of others, which have another behind it.
    """
    following = place.next_collective
    for at in range(len(path.calls)):
        other = _PathPlace(path, at)
        if _is_one_call(place, other):
            theirs = other.next_collective
            if following is None or (theirs is not None and _is_one_call(following, theirs)):
                return True
    return False


def _is_one_call(mine: _PathPlace, theirs: _PathPlace) -> bool:
    """True if two lines make one collective: a branch of the program, and nothing left out."""
    here, there = mine.call, theirs.call
    if here is None or there is None or here.message:
        return False
    place = (here.place, here.seq, here.numbers.plain)
    return place == (there.place, there.seq, there.numbers.plain)


def _unheard(
    places: Sequence[_PathPlace], paths: Sequence[Path], members: Sequence[Collection[int]]
) -> int:
    """Number of ranks with a part in the collectives there whose paths are not known."""
    calls = [one.call for one in places if one.call is not None and not one.call.message]
    ranks = frozenset().union(*(members[one.place] for one in calls))
    return len(ranks - {path.rank for path in paths})


def _is_collective(place: _PathPlace) -> bool:
    return place.call is not None and not place.call.message


def _are_collectives(one: _PathPlace, other: _PathPlace) -> bool:
    return _is_collective(one) and _is_collective(other)


def _makes_later(mine: _PathPlace, theirs: _PathPlace) -> bool:
    """True if the rank makes the very call later that another made instead."""
    later = mine.path.calls[mine.at :]
    call = theirs.call
    return any(call is not None and one is not None and call.is_one_with(one) for one in later)


def _may_come_behind_messages(
    mine: _PathPlace, theirs: _PathPlace, steps: Collection[tuple[Token, Token]]
) -> bool:
    """True if messages are all that the rank made since, and others came from such to the call.

    In a round in which others have none to send they go on to it at once.
    """
    later = mine.path.calls[mine.at :]
    messages = all(call is not None and call.message for call in later)
    return messages and (mine.path.tokens[-1], theirs.token) in steps


def _may_come_to(path: Path, place: _PathPlace, members: Sequence[Collection[int]]) -> bool:
    """True if a place is not of another rank's role alone, such as to log, or to lead."""
    return _has_part(path.rank, place, members) or place.token in path.tokens


def _nearest(mine: _PathPlace, came: Sequence[_PathPlace]) -> list[_PathPlace]:
    """Places of others that have the most in front of them in common with one of a rank's.

    Of several ranks, all of whom went on alike; else none.  Who has yet to go on from where it is
    most like the rank has none.  Nor has, of a call that does not come twice at once, who went on
    in other rounds alone: a call may come in some.
    """
    passed = Counter(one.path.rank for one in came if not one.is_end)
    again = mine.step[0] == mine.token
    others = [
        (mine.shares_with(one), one)
        for one in came
        if one.path.rank != mine.path.rank
        and (
            again
            or (
                not mine.is_of_another_round(one)
                and (one.is_end or one.round is None or passed[one.path.rank] >= (mine.round or 0))
            )
        )
    ]
    most: dict[int, tuple[int, bool]] = {}
    for shared, one in others:
        most[one.path.rank] = max(most.get(one.path.rank, (0, False)), (shared, one.is_end))
    counts = sorted(shared for shared, at_end in most.values() if not at_end)
    if len(counts) < SUCCESSOR_VOTERS:
        return []
    least = counts[-SUCCESSOR_VOTERS]
    waiting = {rank for rank, (_, at_end) in most.items() if at_end}
    found = [
        one
        for shared, one in others
        if shared >= least and one.path.rank not in waiting and not one.is_end
    ]
    return found if len({one.token for one in found}) == 1 else []
