"""The one rank that left the order which all others keep: where, and by what edit of it.

All ranks run one program.  Any two are compared in what both would do: operations of groups of
both, and calls from lines that both come to.  Where all that disagree disagree with one rank, and
are more than one, that rank is the odd one, whatever group or number the job waits in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations, pairwise

from hanglab.analyzer.flight_recorder.columns import ABSENT
from hanglab.analyzer.graph.call_balance import find_imbalance
from hanglab.analyzer.graph.issued_orders import (
    NO_PLACE,
    IssuedCall,
    IssuedOrder,
    since_first_common,
)
from hanglab.analyzer.graph.left_order import LeftOrder
from hanglab.analyzer.graph.parted_orders import PartedOrders
from hanglab.analyzer.graph.parting_sides import Star, stars
from hanglab.analyzer.graph.rank_orders import RankOrders
from hanglab.analyzer.graph.replicas import Replicas
from hanglab.analyzer.graph.waits import OpenOperations
from hanglab.analyzer.matching.groups import ResolvedGroup
from hanglab.analyzer.matching.predicted_edits import leaves_out
from hanglab.analyzer.matching.program_order import (
    Edit,
    Parting,
    Run,
    Token,
    find_fences,
    find_parting,
    keeps_rounds,
)


class ProgramOrders:
    """Orders of all ranks of a small job, and where any two of them part."""

    def __init__(
        self, orders: RankOrders, groups: Sequence[ResolvedGroup], replicas: Replicas
    ) -> None:
        self._orders = orders.by_rank
        self._groups = groups
        self._replicas = replicas

    def parting(self, one: int, other: int) -> PartedOrders | None:
        """The first place at which two ranks part, on whichever threads of theirs."""
        for mine in self._orders.get(one, ()):
            theirs = self._counterpart(mine, other)
            found = None if theirs is None else self._compare(mine, theirs)
            if found is not None:
                return found
        return None

    def find(self, waits: OpenOperations | None) -> LeftOrder | None:
        """The departure of the one rank with which all disagree who disagree at all.

        Of one that explains who waits for whom, unless ``waits`` is None.  None where it only
        did its operations in another order, which may be harmless: rings of waits tell.
        """
        partings = {
            pair: found
            for pair in combinations(sorted(self._orders), 2)
            if (found := self.parting(*pair)) is not None
        }
        # Stages of a pipeline have their own programs, of which no edit makes one of the other.
        apart = {pair for pair, one in partings.items() if not one.is_of_one_program}
        groups = {partings[pair].groups for pair in apart}
        partings = {
            pair: one for pair, one in partings.items()
            if one.groups not in groups and not _are_like_any(pair, apart, partings.keys())
        }  # fmt: skip
        # Orders of the ranks' own are no departures beside what is one.
        clear = {pair: one for pair, one in partings.items() if one.parting.clear}
        parted = len(partings)
        if len(clear) > 1 and all(
            pair in clear or Edit.SWAPPED in one.parting.proved for pair, one in partings.items()
        ):
            partings = clear
        unclear = parted - len(partings)
        parts = stars(partings)
        left = [self._find_among(one, unclear, waits) for one in parts]
        told = [one for one in left if one is not None]
        if not told or len(told) < len(left):
            return None
        first, *others = told
        if not all(one.alike for one in parts):
            # A call that both made, each at a place of its own, may be one that all are to make.
            return first if len({one.call for one in told}) == len(told) else None
        # A whole replica may leave its loop: each of its ranks parts from those of the others.
        if others and (
            first.tied or first.call is None or {o.call for o in others} != {first.call}
        ):
            return None
        return replace(first, others=tuple(sorted(one.rank for one in others)))

    def _find_among(
        self, star: Star, unclear: int, waits: OpenOperations | None
    ) -> LeftOrder | None:
        """The departure of a rank that parts; ``unclear``: number of partings of own orders."""
        partings, siding = star.partings, star.departed if star.alike else frozenset[int]()
        odd = self._odd_one(partings)
        pair, parted = next(iter(partings.items()))
        tied = odd is None and len(partings) == 1 and self._are_alone(pair, parted)
        if tied:
            odd = min(pair)
            if waits is not None and not waits.by_rank.keys() >= {*pair}:
                return None  # Who waits for nothing may have stopped in an order of its own.
        if odd is None or (waits is not None and not explains(odd, star.departed, waits)):
            return None
        sides = [one if pair[0] == odd else one.reversed for pair, one in partings.items()]
        if any(self._is_shared(side, siding) for side in sides) or all(
            self._are_of_all(side) for side in sides
        ):
            return None
        departure = self._departure(odd, sides, max(1, len(siding)), tied=tied)
        if departure is None or any(self._is_of_most(side, siding) for side in sides):
            return None
        if waits is None:
            return departure
        if odd not in waits.by_rank and (
            unclear > 0 or departure.edit is None or Edit.SWAPPED in departure.possible
        ):
            return None  # It may have stopped in an order of its own.
        if departure.edit is Edit.LEFT_OUT:
            # Whoever left an operation out is missed, or meets another one.
            return departure if _is_missed(odd, waits, tied=tied) else None
        return departure

    def _is_shared(self, side: PartedOrders, siding: frozenset[int]) -> bool:
        """True if a third rank made the call at which the first left the order, behind the same.

        One that has a part in the call that the second made there, and in what that one would do.
        Or in a replica of its own, if the first has no part in that call either.  None of
        ``siding``, who left it alike.
        """
        call, other = side.calls
        before = side.here[side.parting.mine - 1] if side.parting.mine else None
        if call is None or before is None:
            return False
        outside = other is not None and other.place not in side.mine.places
        is_same = self._are_of_replicas if outside else IssuedCall.is_one_with
        return any(
            is_same(before, one) and is_same(call, then)
            for rank, orders in self._orders.items()
            if rank not in siding | {side.mine.rank, side.theirs.rank}
            for order in orders
            if other is None or outside or other.place in order.places
            for one, then in pairwise(self._projected(order, side.theirs))
        )

    def _are_of_all(self, side: PartedOrders) -> bool:
        """True if all others of its group made the call there, in one order with the rank.

        Whoever has no part in it, as those who follow a leader, tells nothing of it.
        """
        call, _ = side.calls
        if call is None or call.place in side.theirs.places:
            return False
        fellows = {*self._groups[call.place].members} - {side.mine.rank}
        return self._is_made_by_others(call, {side.mine.rank}) and not any(
            self.parting(side.mine.rank, one) for one in fellows
        )

    def _is_of_most(self, side: PartedOrders, siding: frozenset[int]) -> bool:
        """True if most of the group of a call at which they part left the order, and not all.

        These outvote the rest of it: another replica may have other rounds.
        """
        for call in side.calls:
            members = frozenset(self._groups[call.place].members) if call else frozenset[int]()
            left = siding & members
            if left < members and len(members) < 2 * len(left):
                return True
        return False

    def _are_of_replicas(self, one: IssuedCall, other: IssuedCall) -> bool:
        """True if two calls are the same under one number, from one line, of two replicas."""
        if one.site is None or (one.seq, one.numbers.call) != (other.seq, other.numbers.call):
            return False
        mine, theirs = (set(self._groups[call.place].members) for call in (one, other))
        alike = [set(group.members) for group in self._groups if len(group.members) == len(mine)]
        # Of pairs in a chain, each overlaps the next.
        apart = all(
            one == group or one.isdisjoint(group) for one in (mine, theirs) for group in alike
        )
        return len(mine) == len(theirs) and mine != theirs and apart

    def _departure(
        self, odd: int, sides: list[PartedOrders], siding: int, *, tied: bool
    ) -> LeftOrder | None:
        """The edit on which all agree that part from ``odd``, and the calls at which they do."""
        agreed = frozenset.intersection(*(s.parting.proved | s.parting.possible for s in sides))
        proved = agreed & frozenset[Edit]().union(*(s.parting.proved for s in sides))
        possible = agreed - proved
        longest = max(sides, key=lambda side: (side.is_of_own_group, len(side.theirs.issued)))
        here, there = longest.calls
        predicted = {side.predicted for side in sides}
        told = agreed or predicted == {Edit.LEFT_OUT}  # Of several no single edit is told.
        if Edit.SWAPPED in proved or not told or (tied and not proved):
            return None
        if Edit.LEFT_OUT in proved and there is not None and self._made_unseen(longest.mine, there):
            return None
        if Edit.SWAPPED in possible and (tied or self._in_one_loop(longest)):
            return None
        unheard = max(
            (self._unheard(call) for call in (here, there) if call is not None), default=0
        )
        if 1 < len(sides) <= siding + unheard:
            return None  # As many may have gone its way.
        return LeftOrder(
            odd,
            tied,
            None if here is None else here.index,
            longest.theirs.rank,
            None if there is None else there.index,
            proved,
            possible,
            predicted.pop() if len(predicted) == 1 else None,
            counted=longest.counted,
            regrouped=here is not None
            and there is not None
            and here.place != there.place
            and {here.place, there.place} <= longest.mine.places & longest.theirs.places,
            alike=here is not None and there is not None and here.numbers == there.numbers,
            call=None if here is None else (here.seq, here.numbers.lined),
        )

    def _made_unseen(self, order: IssuedOrder, call: IssuedCall) -> bool:
        """True if a rank has entered a collective by its counters alone: its ring lost when."""
        progress = self._groups[call.place].progress.get(order.rank)
        entered = progress.entered if progress is not None else None
        shown = any(one.place == call.place and not one.message for one in order.issued)
        return not (call.message or shown) and entered is not None and entered >= call.seq

    def _in_one_loop(self, parted: PartedOrders) -> bool:
        """True if one line made both calls before: a loop over groups, which may go another way."""
        mine, theirs = parted.calls
        if mine is None or theirs is None or mine.site is None or mine.site != theirs.site:
            return False
        earlier = parted.mine.issued[: parted.mine.issued.index(mine)]
        used = {one.place for one in earlier if one.site == mine.site}
        return mine.place != theirs.place and {mine.place, theirs.place} <= used

    def _odd_one(self, partings: dict[tuple[int, int], PartedOrders]) -> int | None:
        """The one rank with which all disagree; of two the one that alone made a call."""
        if len(partings) > 1:
            common = set.intersection(*map(set, partings))
            if len(common) != 1:
                return None
            (rank,) = common
            sides = [one if pair[0] == rank else one.reversed for pair, one in partings.items()]
            return None if _is_proved_by_one_alone(sides) else rank
        for one in partings.values():
            for side in (one, one.reversed):
                call, _ = side.calls
                if side.breaks_rounds:
                    by_right = self._all_left_rounds(call, {side.mine.rank, side.theirs.rank})
                    return side.theirs.rank if by_right else side.mine.rank
                # In what a ring has lost the parting's call is no more than the first that is left.
                if side.parting.proved == {Edit.ADDED} and call is not None and not side.counted:
                    group, rank = self._groups[call.place], side.mine.rank
                    progress = [group.progress.get(m) for m in group.members if m != rank]
                    # Who stands before the last one has shown nothing of what comes then.
                    came = [p for p in progress if p and p.has_entered(call.seq - 1) is not False]
                    if len(came) > 1 and all(
                        p is not None and p.has_entered(call.seq) is False for p in progress
                    ):
                        return rank
                    if self._is_made_by_others(call, {rank, side.theirs.rank}):
                        by_all = self._have_both(side) and not self._is_repeated_here_alone(side)
                        return side.theirs.rank if by_all else None
        return None

    def _have_both(self, side: PartedOrders) -> bool:
        """True if other ranks have a part in both calls at which two part, and tell their order."""
        call, other = side.calls
        if call is None or other is None or other.message:
            return True
        shared = {*self._groups[call.place].members} & {*self._groups[other.place].members}
        return not shared <= {side.mine.rank, side.theirs.rank}

    def _is_repeated_here_alone(self, side: PartedOrders) -> bool:
        """True if the first made two collectives of a group at once, and nobody else those two."""
        call, _ = side.calls
        before = side.here[side.parting.mine - 1] if side.parting.mine else None
        if (
            call is None
            or before is None
            or (before.place, before.seq + 1) != (call.place, call.seq)
        ):
            return False
        return not any(
            before.is_one_with(one) and call.is_one_with(then)
            for rank, orders in self._orders.items()
            if rank != side.mine.rank
            for order in orders
            for one, then in pairwise(order.issued)
        )

    def _all_left_rounds(self, call: IssuedCall | None, pair: set[int]) -> bool:
        """True if all others of its group are in the open ``call``, and left their rounds by it.

        Then it is no edit of one rank, but what comes behind some rounds.
        """
        if call is None or call.done or not self._is_made_by_others(call, pair):
            return False
        others = set(self._groups[call.place].members) - pair
        return all(
            leaves_out([(one.place, one.numbers.plain) for one in order.issued], at)
            for rank in others
            for order in self._orders.get(rank, ())
            for at, one in enumerate(order.issued)
            if call.is_one_with(one)
        )

    def _is_made_by_others(self, call: IssuedCall, besides: set[int]) -> bool:
        """True if all members of its group but those made the very call, and there are some.

        With the same size: else it meets another one under that number.
        """
        others = set(self._groups[call.place].members) - besides
        return bool(others) and all(
            any(
                call.is_one_with(one) and call.is_called_as(one)
                for order in self._orders.get(r, ())
                for one in order.issued
            )
            for r in others
        )

    def _unheard(self, call: IssuedCall) -> int:
        """Members of a call's group of whose order nothing is known."""
        group = self._groups[call.place]
        return group.unlisted + sum(member not in self._orders for member in group.members)

    def _are_alone(self, pair: tuple[int, int], parted: PartedOrders) -> bool:
        """True if no third rank is in the groups of the calls at which two part."""
        calls = [call for call in parted.calls if call is not None]
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

    def _counterpart(self, mine: IssuedOrder, other: int) -> IssuedOrder | None:
        """The thread of another rank that does what this one does."""

        def common(theirs: IssuedOrder) -> int:
            return len(mine.used & theirs.used) + len(mine.sites & theirs.sites)

        return max(filter(common, self._orders.get(other, ())), key=common, default=None)

    def _compare(self, mine: IssuedOrder, theirs: IssuedOrder) -> PartedOrders | None:
        counted = self._compare_counts(mine, theirs)
        if counted is not None:
            return counted  # Numbers by which orders would be laid beside each other are shifted.
        here, there = self._projected(mine, theirs), self._projected(theirs, mine)
        tokens = self._tokens(mine, theirs, here, there)
        if tokens is None:
            return None
        here, there, first, second = tokens
        done = _done(here), _done(there)

        def find() -> Parting | None:
            return find_parting(first, second, done, *self._free_orders)

        found = find()
        while (
            found is not None
            and _met(found, here, there)
            and second[found.theirs] != first[found.mine]
        ):
            second[found.theirs] = first[found.mine]
            found = find()
        if found is None:
            return None
        return PartedOrders(mine, theirs, found, here, there, (first, second))

    def _compare_counts(self, mine: IssuedOrder, theirs: IssuedOrder) -> PartedOrders | None:
        """The parting of two in what a ring has lost, by the counts of what came behind it."""
        if mine.whole and theirs.whole:
            return None
        places = mine.places & theirs.places
        for order in (mine, theirs):
            besides = (one.used for one in self._orders[order.rank] if one is not order)
            places -= frozenset().union(*besides)  # Threads take turns in them.
        here, there = self._projected(mine, theirs), self._projected(theirs, mine)
        found = find_imbalance(here, there, places)
        tokens = None if found is None else self._tokens(mine, theirs, here, there)
        if found is None or tokens is None:
            return None
        parting = Parting(found.mine, found.theirs, frozenset({found.edit}), frozenset())
        return PartedOrders(mine, theirs, parting, here, there, tokens[2:], counted=True)

    def _tokens(
        self,
        mine: IssuedOrder,
        theirs: IssuedOrder,
        here: list[IssuedCall],
        there: list[IssuedCall],
    ) -> tuple[list[IssuedCall], list[IssuedCall], list[Token], list[Token]] | None:
        """Two orders from the first place known on both sides on, and what they would call it."""
        if not (mine.whole and theirs.whole):
            since = since_first_common(here, there)
            if since is None:
                return None
            here, there = since
        common = mine.places & theirs.places
        # Where one of the two has no lines, nothing but the rest can be compared.
        lines = bool(mine.sites and theirs.sites)
        sized = mine.sized and theirs.sized
        unsized = {
            one.numbers.lined for one in (*here, *there) if one.numbers.lined_input == ABSENT
        }

        def name(one: IssuedCall) -> int:
            numbers = one.numbers
            if not lines:
                return numbers.plain
            if sized:
                return numbers.call
            return numbers.lined if numbers.lined in unsized else numbers.lined_input

        def named(order: list[IssuedCall], other: list[IssuedCall]) -> list[Token]:
            # What is not known is what the other did under its number.
            known = {(one.place, one.seq): one for one in other if one.known}
            full = [one if one.known else known.get((one.place, one.seq), one) for one in order]
            return [(one.place if one.place in common else NO_PLACE, name(one)) for one in full]

        return here, there, named(here, there), named(there, here)

    @cached_property
    def _free_orders(self) -> tuple[frozenset[Token], set[Run]]:
        """Operations that most ranks with orders of their own have behind each of them, and these.

        Such an operation ends a round: at most one rank, which left the order, has other operations
        in front of it than in its other rounds.  What only followed some of them once does not.
        """
        found: Counter[Token] = Counter()
        harmless: set[Run] = set()
        keeping: dict[Token, set[int]] = {}
        breaking: dict[Token, set[int]] = {}
        pairs = 0
        for one, other in combinations(sorted(self._orders), 2):
            for mine in self._orders[one]:
                theirs = self._counterpart(mine, other)
                if theirs is None:
                    continue
                here, there = self._projected(mine, theirs), self._projected(theirs, mine)
                tokens = self._tokens(mine, theirs, here, there)
                if tokens is not None:
                    here, there, first, second = tokens
                    done = _done(here), _done(there)
                    fences, runs = find_fences(first, second, done)
                    harmless.update(runs)
                    found.update(fences)
                    pairs += bool(fences)
                    for fence in fences:
                        for rank, order in ((one, first), (other, second)):
                            kept = keeps_rounds(order, fence)
                            if kept is not None:
                                (keeping if kept else breaking).setdefault(fence, set()).add(rank)
        usual = frozenset(
            token
            for token, count in found.items()
            if 2 * count > pairs
            and token in keeping
            and len(breaking.get(token, set()) - keeping[token]) < 2
        )
        return usual, harmless

    def _projected(self, mine: IssuedOrder, theirs: IssuedOrder) -> list[IssuedCall]:
        """Operations that the other rank would do as well.

        Stages of a pipeline come to one line in orders of their own.
        """
        common, sites = mine.places & theirs.places, mine.sites & theirs.sites
        alike = self._replicas.run_alike(mine.rank, theirs.rank)
        return [one for one in mine.issued if one.place in common or (one.site in sites and alike)]


def _are_like_any(
    pair: tuple[int, int], apart: Collection[tuple[int, int]], parted: Collection[tuple[int, int]]
) -> bool:
    """True if two ranks do as two others that have programs of their own: neither parts from one.

    Who left the order of its own program parts from those who keep it.
    """

    def part(one: int, other: int) -> bool:
        return one != other and (min(one, other), max(one, other)) in parted

    mine, theirs = pair
    return any(
        not (part(mine, one) or part(theirs, other))
        for two in apart
        for one, other in (two, two[::-1])
    )


def _met(found: Parting, here: list[IssuedCall], there: list[IssuedCall]) -> bool:
    """True if two calls differ in their lines alone, and are one operation.

    A branch of one rank that makes the call of its peers is no edit; one too many, or too few,
    shows in what follows: its lines differ as well, until the end.
    """
    if found.mine >= len(here) or found.theirs >= len(there):
        return False
    mine, theirs = here[found.mine], there[found.theirs]
    if not (mine.known and theirs.known):
        return False
    one = (mine.place, mine.seq, mine.numbers.plain) == (
        theirs.place,
        theirs.seq,
        theirs.numbers.plain,
    )
    edits = found.proved or found.possible
    return one and mine.numbers.call != theirs.numbers.call and Edit.CHANGED in edits


def _is_proved_by_one_alone(sides: Sequence[PartedOrders]) -> bool:
    """True if a rank parts from one other first, and later from the rest without an edit to prove.

    These may have rounds of their own: of the two that part first nothing tells which one did.
    """
    first, *later = sorted(sides, key=lambda side: side.parting.mine)
    return first.parting.clear and all(
        one.parting.mine > first.parting.mine and not one.parting.clear for one in later
    )


def explains(rank: int, departed: frozenset[int], waits: OpenOperations) -> bool:
    """True if the rank waits, or is waited for, and nobody waits for another that is idle but it.

    But those that left the order with it: nobody need come to what they are in.  What all of a
    group have come to without the rank it does not hold up.
    """
    for operation in waits.operations.values():
        if operation.stalled and operation.seq is not None and rank not in operation.group.members:
            if len(operation.waiters) > 1 and operation.waiters.keys() == operation.leaders:
                return False
    idle = {
        other
        for waiting in map(waits.first, waits.by_rank)
        for operation in waiting
        if operation.waiters.keys() - departed - {rank}
        for other in operation.absent
    } - waits.by_rank.keys()
    return idle <= {rank} and (
        rank in waits.by_rank or any(rank in one.absent for one in waits.operations.values())
    )


def _is_missed(rank: int, waits: OpenOperations, *, tied: bool) -> bool:
    """True if an operation lacks the rank, or is one in which ranks do not agree.

    Where its peer may as well have one too many (``tied``), and has gone on from it, so that no
    ring tells of the two, that has the number of the rank's next call.
    """
    return any(
        rank in {*operation.absent, *operation.unknown}
        or (tied and rank in operation.behind and not waits.unsettled.isdisjoint(operation.waiters))
        or (operation.explained and rank in operation.waiters)
        for operation in waits.operations.values()
    )


def _done(issued: list[IssuedCall]) -> int:
    return next((at for at, one in enumerate(issued) if not one.done), len(issued))
