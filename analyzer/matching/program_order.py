"""Two ranks' orders of the same program, and the single edit of one that makes it the other's.

Ranks run one program, so what they issue in common they issue in one order, or, where it does
not matter to them, in orders of their own between operations that all have at the same place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice, pairwise

from hanglab.analyzer.matching.thresholds import LONGEST_REORDERING

#: An operation as both ranks would name it.
Token = Hashable
#: How often operations come in a run of them, in any order.
Run = frozenset[tuple[Token, int]]


class Edit(Enum):
    """Change of one rank to the order of the other."""

    LEFT_OUT = "left_out"
    ADDED = "added"
    CHANGED = "changed"
    SWAPPED = "swapped"

    @property
    def opposite(self) -> Edit:
        """The edit of the other rank that would look the same."""
        return _OPPOSITE.get(self, self)


_OPPOSITE = {Edit.LEFT_OUT: Edit.ADDED, Edit.ADDED: Edit.LEFT_OUT}


@dataclass(frozen=True)
class Parting:
    """The places, one in each order, at which two ranks part, by single edits of the first."""

    mine: int
    theirs: int
    #: Edits after which all that follows agrees, as far as both go; what follows shows them.
    proved: frozenset[Edit]
    #: Edits of which nothing that follows tells.
    possible: frozenset[Edit]

    @property
    def clear(self) -> bool:
        """True if an edit is proved, and calls in another order are none that explains it."""
        return bool(self.proved) and Edit.SWAPPED not in self.proved

    @property
    def reversed(self) -> Parting:
        """The parting from the other rank's side."""
        return Parting(
            self.theirs,
            self.mine,
            frozenset(edit.opposite for edit in self.proved),
            frozenset(edit.opposite for edit in self.possible),
        )


def find_parting(
    mine: Sequence[Token],
    theirs: Sequence[Token],
    done: tuple[int, int],
    fences: Collection[Token] = (),
    harmless: Collection[Run] = (),
) -> Parting | None:
    """The first place at which two orders part; None where they agree as far as both go.

    ``done`` is how many operations of each had finished up to the first that had not: whatever
    the two had in other orders by then did not matter, unless one edit explains all that follows.
    ``fences`` are operations across which no rank is known to have an order of its own,
    ``harmless`` are runs of which some have, and went on.
    """
    at = _agreeing(mine, theirs, 0, 0)
    if at == min(len(mine), len(theirs)):
        return None
    single = _parting(mine, theirs, at, at)
    found = _parting_by_runs(mine, theirs, done, set(fences), set(harmless))
    # After one of these both come to the same end, which is less than another and a stop.
    ahead = {Edit.LEFT_OUT: -1, Edit.ADDED: 1}
    exact = frozenset(edit for edit in single.proved if ahead.get(edit) == len(mine) - len(theirs))
    if Edit.SWAPPED in single.proved and not exact:
        return found
    if exact:
        return replace(single, proved=exact)
    return single if found is not None and single.proved else found


def find_first_parting(mine: Sequence[Token], theirs: Sequence[Token]) -> Parting | None:
    """The first place at which two orders are not alike; None where they are as far as both go."""
    at = _agreeing(mine, theirs, 0, 0)
    return None if at == min(len(mine), len(theirs)) else _parting(mine, theirs, at, at)


def find_fences(
    mine: Sequence[Token], theirs: Sequence[Token], done: tuple[int, int]
) -> tuple[set[Token], set[Run]]:
    """Operations that two ranks have behind what each of them did in an order of its own.

    And these runs.
    """
    fences: set[Token] = set()
    harmless: set[Run] = set()
    _parting_by_runs(mine, theirs, done, fences, harmless, learn=True)
    return fences, harmless


def keeps_rounds(order: Sequence[Token], fence: Token) -> bool | None:
    """True if an order has the same operations, in any order, in front of each of its fences.

    What comes in front of the first one counts only if it is the same, as programs begin with calls
    of their own.  None where nothing can be compared.
    """
    places = [place for place, token in enumerate(order) if token == fence]
    rounds = [Counter(order[a + 1 : b]) for a, b in pairwise([-1, *places])]
    later = rounds[1:]
    if len(rounds) > 1 and all(one == rounds[0] for one in later):
        return True
    return None if len(later) < 2 else all(one == later[0] for one in later)


def _parting_by_runs(
    mine: Sequence[Token],
    theirs: Sequence[Token],
    done: tuple[int, int],
    fences: set[Token],
    harmless: set[Run],
    *,
    learn: bool = False,
) -> Parting | None:
    """The place where two orders part, runs that both have in orders of their own left out.

    These are added to ``harmless``, the operations that follow them to ``fences`` (``learn``).
    """
    a = b = _agreeing(mine, theirs, 0, 0)
    while a < len(mine) and b < len(theirs):
        size = _reordered(mine, theirs, a, b, fences)
        run = frozenset(Counter(mine[a : a + size]).items())
        if size and ((a + size <= done[0] and b + size <= done[1]) or run in harmless):
            a, b = a + size, b + size
            harmless.add(run)
            if learn and a < len(mine) and b < len(theirs) and mine[a] == theirs[b]:
                fences.add(mine[a])
        elif fences:
            return _parting_by_fences(mine, theirs, a, b, fences)
        else:
            return _parting(mine, theirs, a, b)
        more = _agreeing(mine, theirs, a, b)
        a, b = a + more, b + more
    return None


def _agreeing(mine: Sequence[Token], theirs: Sequence[Token], a: int, b: int) -> int:
    """Number of operations from there on that both have alike."""
    pairs = zip(islice(mine, a, None), islice(theirs, b, None), strict=False)
    most = min(len(mine) - a, len(theirs) - b)
    return next((count for count, (one, other) in enumerate(pairs) if one != other), most)


def _reordered(
    mine: Sequence[Token], theirs: Sequence[Token], a: int, b: int, fences: set[Token]
) -> int:
    """Size of the smallest run from there on that both have, in other orders; 0 for none."""
    balance: Counter[Token] = Counter()
    most = min(LONGEST_REORDERING, len(mine) - a, len(theirs) - b)
    for size in range(most):
        if mine[a + size] in fences or theirs[b + size] in fences:
            return 0
        for token, by in ((mine[a + size], 1), (theirs[b + size], -1)):
            balance[token] += by
            if not balance[token]:
                del balance[token]
        if not balance:
            return size + 1
    return 0


def _parting(mine: Sequence[Token], theirs: Sequence[Token], a: int, b: int) -> Parting:
    here, there = mine[a:], theirs[b:]
    followed = {
        Edit.LEFT_OUT: _follows(here, there[1:]),
        Edit.ADDED: _follows(here[1:], there),
        Edit.CHANGED: _follows(here[1:], there[1:]),
        Edit.SWAPPED: _swapped(here, there),
    }
    return Parting(
        a,
        b,
        frozenset(edit for edit, proved in followed.items() if proved),
        frozenset(edit for edit, proved in followed.items() if proved is None),
    )


def _follows(here: Sequence[Token], there: Sequence[Token]) -> bool | None:
    """True if the one goes on as the other; None where one of them has nothing more."""
    if not here or not there:
        return None
    return _agreeing(here, there, 0, 0) == min(len(here), len(there))


def _swapped(here: Sequence[Token], there: Sequence[Token]) -> bool | None:
    """True if two operations have changed places, or one comes behind some others, or before.

    None where the second of two would have yet to come.
    """
    if _has_moved(here, there) or _has_moved(there, here):
        return True
    place = next((i for i, one in enumerate(there) if i and one == here[0]), None)
    if place is None:
        return None if len(there) == 1 or len(here) == 1 else False
    if list(here[1 : min(place, len(here))]) != list(there[1 : min(place, len(here))]):
        return False
    if len(here) <= place:
        return None
    return here[place] == there[0] and _follows(here[place + 1 :], there[place + 1 :]) is not False


def _has_moved(here: Sequence[Token], there: Sequence[Token]) -> bool:
    """True if the first of one order comes behind some others in the other one, and all is alike.

    As far as both go: beyond it, or no further and then as many.
    """
    place = next((i for i, one in enumerate(there) if i and one == here[0]), None)
    if place is None or len(here) <= place:
        return False
    if list(here[1 : place + 1]) != list(there[:place]):
        return False
    behind = _follows(here[place + 1 :], there[place + 1 :])
    return len(here) == len(there) if behind is None else behind


def _parting_by_fences(
    mine: Sequence[Token], theirs: Sequence[Token], a: int, b: int, fences: set[Token]
) -> Parting | None:
    """The place where ranks without a common order differ in what they do from fence to fence."""
    while True:
        ends = _next_fence(mine, a, fences), _next_fence(theirs, b, fences)
        here, there = Counter(mine[a : ends[0]]), Counter(theirs[b : ends[1]])
        whole = ends[0] < len(mine), ends[1] < len(theirs)
        same_fence = all(whole) and mine[ends[0]] == theirs[ends[1]]
        lacks, more = there - here, here - there
        edits = set()
        if lacks and whole[0]:
            edits.add(Edit.LEFT_OUT)
        if more and whole[1]:
            edits.add(Edit.ADDED)
        if edits and not (here and there):
            # Nothing between two fences: one of them is too many.  A call that neither ever made
            # is the fence itself, made otherwise.
            known = {*mine[:a], *theirs[:b]}
            edits = {Edit.LEFT_OUT if here else Edit.ADDED}
            odd = mine[a] if here else theirs[b]
            if (
                not all(whole)
                and odd not in known
                and known.issuperset(here + there - Counter([odd]))
            ):
                edits = {Edit.CHANGED}
            return Parting(a, b, frozenset(edits), frozenset())
        if edits:
            if len(edits) > 1:
                edits = {Edit.CHANGED} if lacks.total() == more.total() == 1 else set()
            single = (lacks - more).total() < 2 and (more - lacks).total() < 2
            return Parting(
                _place(mine, a, ends[0], more), _place(theirs, b, ends[1], lacks),
                frozenset(edits if single else ()), frozenset(),
            )  # fmt: skip
        if not same_fence:
            return None
        a, b = ends[0] + 1, ends[1] + 1


def _next_fence(order: Sequence[Token], since: int, fences: set[Token]) -> int:
    return next((i for i in range(since, len(order)) if order[i] in fences), len(order))


def _place(order: Sequence[Token], since: int, end: int, wanted: Counter[Token]) -> int:
    """The last place of one of ``wanted``, or where the run ends."""
    found = [i for i in range(since, end) if order[i] in wanted]
    return found[-1] if found else end
