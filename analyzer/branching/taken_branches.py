"""The branch at which two ranks parted, by the branches that both were recorded to take.

Between two calls that both ranks made, their branches are held against each other.  Where they
differ, both came to one place and went on differently there.  A difference that ranks had before
and made the same calls after is theirs by right.  Ranks that make the same calls in different
rounds of a loop have parted before: in the round after which one had begun more of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from hanglab.analyzer.branching.call_sites import ProgramCall
from hanglab.analyzer.branching.partings import same_site
from hanglab.analyzer.branching.program_graph import BranchesLost, Chain, NotFollowed
from hanglab.recorder.case import branch_layout as layout
from hanglab.recorder.case.branch_trace import BranchPlace, BranchTrace, TakenBranch

#: Kinds of ways that are seen alone: whoever does not go there leaves no branch.
LONE = frozenset((layout.OPERAND, layout.ELEMENT, layout.BLOCK_ENDED, *layout.HANDLERS))
#: Branches between two calls beyond which places that both came to are not looked for.
_MOST_COMPARED = 2_000


class BranchParting(NamedTuple):
    """A place and the kinds of the two ways on; 0 for a rank that did not come to a lone way."""

    place: BranchPlace
    mine: int
    theirs: int


class _BranchDifference(NamedTuple):
    """A parting, None where no branch tells it, and the place where the two met again.

    The peer was apart from ``since_ns`` to ``until_ns``.
    """

    parting: BranchParting | None
    meeting: BranchPlace | None
    since_ns: int = 0
    until_ns: int = 1 << 63
    #: Neither began another round of a loop before they met.
    onward: bool = False


class RecordedRank:
    """A rank's calls and branches, between which time tells the order.  Raises NotFollowed."""

    def __init__(self, sites: Sequence[ProgramCall], trace: BranchTrace) -> None:
        times = [site.at_ns for site in sites]
        if None in times:
            raise NotFollowed("not all calls say when they were made")
        self._calls = [time for time in times if time is not None]
        self.sites = sites
        self._branches = trace.branches
        self._at = [branch.at_ns for branch in trace.branches]
        #: Index of the first call before which no branch is missing.
        self.first = 0
        if not trace.whole:
            oldest = self._at[0] if self._at else 1 << 63
            self.first = bisect_left(self._calls, oldest) + 1

    def segment(self, index: int) -> Sequence[TakenBranch]:
        """Branches before the call of an index, and behind the one before it."""
        if index > len(self._calls):
            return ()
        begin = bisect_left(self._at, self._calls[index - 1]) if index else 0
        end = len(self._at)
        if index < len(self._calls):
            end = bisect_left(self._at, self._calls[index])
        return self._branches[begin:end]


class RecordedPair:
    """Two ranks, the branches of which are compared up to the calls at which they parted.

    That is call ``last`` of the one and ``last + shift`` of the other; ``called`` if both are
    calls, and none of them is the place where a rank is.  Raises NotFollowed.
    """

    def __init__(
        self, mine: RecordedRank, theirs: RecordedRank, shift: int, last: int, called: bool
    ) -> None:
        self._mine = mine
        self._theirs = theirs
        self._shift = shift
        self._last = last
        self._called = called
        self._first = max(mine.first, theirs.first - shift, -shift, 0)
        if self._first > last:
            raise BranchesLost("the recorded branches do not go back to the last common call")
        self._differences: dict[int, list[_BranchDifference]] = {}

    def call_of_parting(self, loops: Collection[BranchPlace]) -> int:
        """Index of the call before which they parted, ``loops`` being those around their calls.

        Raises NotFollowed.
        """
        if loops and self._first > 0:
            # Which of them had begun more rounds by then is not known.
            raise BranchesLost("the recorded branches do not go back to the first common call")
        at = self._last
        for loop in loops:
            ahead, since = 0, at
            for index in range(self._first, self._last):
                more = self._rounds(index, loop)
                if more and not ahead:
                    since = index
                ahead += more
            if ahead:
                at = min(at, since)
        return at

    def _rounds(self, index: int, loop: BranchPlace) -> int:
        """By how many more rounds of a loop the first rank began than its peer."""
        mine, theirs = (
            sum(b.place == loop and b.kind == layout.LOOP_AGAIN for b in segment)
            for segment in self._segments(index)
        )
        return mine - theirs

    def _segments(self, index: int) -> tuple[Sequence[TakenBranch], Sequence[TakenBranch]]:
        return self._mine.segment(index), self._theirs.segment(index + self._shift)

    def parting_before(
        self,
        index: int,
        meets: Callable[[BranchPlace, BranchPlace, bool], bool],
        calls: Sequence[int] | None = None,
        loops: Collection[BranchPlace] = (),
        pending: Collection[Chain] = (),
    ) -> BranchParting:
        """The one place before a call at which the two parted.  Raises NotFollowed.

        ``meets`` says of a place, a later one and whether they came there in the same round
        whether all ways on from the one lead to the other.
        ``calls`` are times of the peer's calls, where not all of the rank's are known: a parting
        on whose way the peer made none has left none out.  ``loops`` are those around the calls,
        and ``pending`` calls after which ranks may go on by what they decided before.
        """
        since = self._first_of_repeated(index, loops)
        while since > self._first and self._mine.sites[since - 1].chain in pending:
            since -= 1
        by_right = {one.parting for i in range(self._first, since) for one in self.differences(i)}
        found: list[_BranchDifference] = []
        for each in range(since, index + 1):
            new = [one for one in self.differences(each) if one.parting not in by_right]
            if calls is not None:
                new = [one for one in new if _any_between(calls, one.since_ns, one.until_ns)]
            if not found:
                found = new
            elif any(one.parting and not _at_place(found, one.parting.place) for one in new):
                raise NotFollowed("the ranks took different branches before several calls")
        if not found:
            found = self._change_of_habit(index)
        if not found:
            raise NotFollowed("the ranks took the same branches up to the calls that differ")
        last = found[-1].parting
        for one in found[:-1]:
            if one.parting in (None, last):
                continue
            if one.meeting is None or not meets(one.parting.place, one.meeting, one.onward):
                lines = sorted({each.parting.place.line for each in found if each.parting})
                at = ", ".join(map(str, lines))
                raise NotFollowed(f"the ranks took different branches at several lines ({at})")
        if last is None or any(one.parting is None for one in found):
            raise NotFollowed("the ranks took different branches, and what parted them is not seen")
        return last

    def _first_of_repeated(self, index: int, loops: Collection[BranchPlace]) -> int:
        """Index of the first of the calls of one place up to a call, without a round between them.

        What repeats them is within torch, or the line itself.  One of them too many or too few
        shows at their end alone.
        """
        while index > self._first and self._is_repeated(index, loops):
            index -= 1
        return index

    def _is_repeated(self, index: int, loops: Collection[BranchPlace]) -> bool:
        """True if one of the two made the call before this one again, in the same round."""
        for rank, at in ((self._mine, index), (self._theirs, index + self._shift)):
            pair = rank.sites[at - 1 : at + 1]
            if len(pair) == 2 and same_site(*pair):
                if not any(branch.place in loops for branch in rank.segment(at)):
                    return True
        return False

    def _change_of_habit(self, index: int) -> list[_BranchDifference]:
        """The branch that a rank took otherwise than before, where its peer is not by right.

        Before, it went on from the same call to the one that its peer makes now, and it has not
        come back from there.
        """
        mine, there = self._mine.sites, self._theirs.sites[index + self._shift :]
        for before in range(index - 1, max(self._first, 1) - 1, -1) if self._called else ():
            if not same_site(mine[before - 1], mine[index - 1]):
                continue
            if there and same_site(mine[before], there[0]):
                segments = self._mine.segment(index), self._mine.segment(before)
                found = list(_differences(*segments, both_called=True))
                return found if len(found) == 1 and found[0].meeting is None else []
        return []

    def differences(self, index: int) -> list[_BranchDifference]:
        """Places before a call at which the two went on differently, in their order."""
        known = self._differences.get(index)
        if known is None:
            both_called = index < self._last or self._called
            known = list(_differences(*self._segments(index), both_called))
            self._differences[index] = known
        return known


def _at_place(found: Sequence[_BranchDifference], place: BranchPlace) -> bool:
    return any(one.parting is not None and one.parting.place == place for one in found)


def _any_between(times: Sequence[int], begin: int, end: int) -> bool:
    return bisect_left(times, begin) < bisect_left(times, end)


def _differences(
    mine: Sequence[TakenBranch], theirs: Sequence[TakenBranch], both_called: bool
) -> Iterator[_BranchDifference]:
    """Differences of two ranks' branches; ``both_called`` if a call of each comes behind them."""
    i = j = 0
    while i < len(mine) and j < len(theirs):
        one, other = mine[i], theirs[j]
        if one.place != other.place:
            parting = _lone(one, other)
        else:
            i, j = i + 1, j + 1
            if one.kind == other.kind:
                continue
            parting = BranchParting(one.place, one.kind, other.kind)
        ways = mine[i:], theirs[j:]
        i, j = _meeting(mine, theirs, i, j)
        if i < len(mine) and j < len(theirs):
            apart = [*ways[0][: i - len(mine)], *ways[1][: j - len(theirs)]]
            onward = all(branch.kind != layout.LOOP_AGAIN for branch in apart)
            yield _BranchDifference(parting, mine[i].place, other.at_ns, theirs[j].at_ns, onward)
        else:
            yield _BranchDifference(parting, None, other.at_ns)
    for left, is_mine in ((mine[i:], True), (theirs[j:], False)):
        # Else the one without it may be on its way there.
        if both_called and left and left[0].kind in LONE:
            yield _BranchDifference(_of_one(left[0], is_mine), None)


def _lone(one: TakenBranch, other: TakenBranch) -> BranchParting | None:
    """The way that one of two ranks took alone, who went together and come to two places next."""
    if one.kind in LONE and other.kind not in LONE:
        return _of_one(one, is_mine=True)
    if other.kind in LONE and one.kind not in LONE:
        return _of_one(other, is_mine=False)
    return None


def _of_one(branch: TakenBranch, is_mine: bool) -> BranchParting:
    return BranchParting(branch.place, branch.kind * is_mine, branch.kind * (not is_mine))


def _meeting(
    mine: Sequence[TakenBranch], theirs: Sequence[TakenBranch], i: int, j: int
) -> tuple[int, int]:
    """Indices of the next place that both come to; the ends where there is none."""
    end = len(mine), len(theirs)
    if max(end[0] - i, end[1] - j) > _MOST_COMPARED:
        raise NotFollowed("the ranks took too many branches between two calls")
    their_next: dict[BranchPlace, int] = {}
    for at in range(j, end[1]):
        their_next.setdefault(theirs[at].place, at)
    common = [
        (at, their_next[mine[at].place]) for at in range(i, end[0]) if mine[at].place in their_next
    ]
    return min(common, key=sum, default=end)
