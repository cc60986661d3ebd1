"""The one rank that broke the order which it kept itself, while all others keep theirs.

Stages of a pipeline, actors and learners have calls of their own, so that no two of them can be
compared.  But each repeats itself: where all wait, and one of them alone has called what its own
rounds do not have there, the others wait for what these have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hanglab.analyzer.graph.issued_orders import IssuedCall, IssuedOrder
from hanglab.analyzer.graph.left_order import LeftOrder
from hanglab.analyzer.graph.thresholds import (
    COMPARED_ORDERS,
    LATEST_ISSUED,
    LATEST_OF_RING,
    MANY_ROUNDS,
    MOST_IN_ORDER,
)
from hanglab.analyzer.graph.waits import OpenOperations
from hanglab.analyzer.matching.group_history import continuation, period_of, repeats_since
from hanglab.analyzer.matching.predicted_edits import predict_edit
from hanglab.analyzer.matching.program_order import Edit, Parting, Token


@dataclass(frozen=True)
class OwnOrder:
    """A rank's latest operations against the rounds that it repeated before.

    ``broken`` is the place of the first that its rounds do not have there, None where all came as
    in each round before.
    """

    issued: list[IssuedCall]
    tokens: list[Token]
    period: int
    broken: int | None
    #: The ring holds all that the rank issued.
    whole: bool

    @property
    def edit(self) -> Edit | None:
        """The edit of its own rounds that its calls are by since it broke them."""
        return None if self.broken is None else self._edit_at(self.broken)

    @property
    def rounds(self) -> int:
        """Number of whole rounds that came before it broke them, as far as the ring has them."""
        past = self.tokens[: self.broken]
        return (len(past) - repeats_since(past, self.period)) // self.period

    @property
    def swaps(self) -> bool:
        """True if it broke its rounds by two calls of theirs, of two groups, in turned order."""
        if self.broken is None or self.period < 2:
            return False
        at = self.broken - self.period
        turned = self.tokens[self.broken : self.broken + 2] == self.tokens[at : at + 2][::-1]
        return turned and self.issued[at].place != self.issued[at + 1].place

    @property
    def at_break(self) -> IssuedCall:
        return self.issued[len(self.issued) - 1 if self.broken is None else self.broken]

    @property
    def is_repeated(self) -> bool:
        """True if it broke its rounds by a call that they have elsewhere."""
        at = self.broken
        return at is not None and self.tokens[at] in self.tokens[at - self.period : at]

    @property
    def stays_in_loop(self) -> bool:
        """True if it broke its rounds, and has done nothing since that they do not have.

        Who goes on to another phase has.  A branch has lines of its own for a collective of theirs.
        """
        at = self.broken
        if at is None:
            return False
        usual = {*self.tokens[at - self.period : at]}
        known = {_unlined(one) for one in self.issued[at - self.period : at] if not one.message}
        return all(
            token in usual or (not call.message and _unlined(call) in known)
            for token, call in zip(self.tokens[at:], self.issued[at:], strict=True)
        )

    @property
    def is_new(self) -> bool:
        """True if its rounds do not have the call at which it broke them, from whichever line.

        A branch of the program has lines of its own for what all do; a message's line has one peer.
        """
        at = self.broken
        if at is None:
            return False
        call, usual = self.issued[at], self.issued[at - self.period : at]
        if call.message and any(one.numbers.call == call.numbers.call for one in usual):
            usual = [one for one in usual if one.numbers.call == call.numbers.call]
        return _unlined(call) not in map(_unlined, usual)

    @property
    def is_on_its_line(self) -> bool:
        """True if it broke its rounds by a call from a line of theirs."""
        at = self.broken
        return at is not None and self.at_break.site in {
            one.site for one in self.issued[at - self.period : at] if one.site is not None
        }

    def is_behind(self, other: OwnOrder) -> bool:
        """True if another rank has begun a round more than those after which this one broke its.

        By the numbers of what both have called, or by all that they did.
        """
        end = len(self.tokens) if self.broken is None else self.broken
        mine, theirs = ({o.place: o.seq for o in made if not o.message}
                        for made in (self.issued[:end], other.issued))  # fmt: skip
        if any(theirs[place] > mine[place] for place in mine.keys() & theirs.keys()):
            return True
        counted = self.whole and other.whole
        return counted and end // self.period * other.period < len(other.tokens)

    def edit_at(self, index: int) -> Edit | None:
        """The edit at the operation with that index of the rank's entries."""
        at = next((at for at, one in enumerate(self.issued) if one.index == index), None)
        return None if at is None else self._edit_at(at)

    def _edit_at(self, at: int) -> Edit | None:
        past = self.tokens[:at]
        due = continuation(past, 1)
        if not due:
            return None
        return predict_edit(self.tokens, [*past, *due], Parting(at, at, frozenset(), frozenset()))


def read_own_order(
    order: IssuedOrder, *, sized: bool = True, latest_issued: Sequence[int] = LATEST_ISSUED
) -> OwnOrder | None:
    """The rank's own order; None where it has not repeated itself.

    Unless ``sized``, whatever the sizes of its calls, and the peers of its messages.
    """
    issued = order.issued
    tokens: list[Token] = [
        (one.place, one.numbers.own if sized else one.numbers.lined) for one in issued
    ]
    for latest in (one for one in latest_issued if one < len(tokens)):
        past = tokens[: len(tokens) - latest]
        period = period_of(past)
        # A few calls that repeat themselves within a round are none.
        if period is None:
            continue
        before = repeats_since(past, period)
        if 2 * before <= len(past):
            places = range(len(tokens) - latest, len(tokens))
            # Behind other calls its rounds may be those within a phase, which has another one
            # behind it with lines of its own.
            lines = before < period
            broken = next(
                (at for at in places if not _is_due(issued, tokens, at, period, any_line=lines)),
                None,
            )
            if broken is not None and _comes_again(tokens, broken):
                continue  # That is how its rounds end; what came before is one within them.
            return OwnOrder(issued, tokens, period, broken, order.whole)
    return None


def _is_due(
    issued: Sequence[IssuedCall], tokens: Sequence[Token], at: int, period: int, *, any_line: bool
) -> bool:
    """True if a call is what the rounds have there; with ``any_line`` a message from another, too.

    A branch has lines of its own for what its peers' rounds are to meet.
    """
    mine, usual = issued[at], issued[at - period]
    if tokens[at] == tokens[at - period] or not any_line:
        return tokens[at] == tokens[at - period]
    return mine.message and usual.message and mine.numbers.plain == usual.numbers.plain


def _comes_again(tokens: Sequence[Token], at: int) -> bool:
    """True if a rank came to a call from the one before it as it did at a place, later on."""
    return (tokens[at - 1], tokens[at]) in pairwise(tokens[at:])


def keeps_to_rounds(order: IssuedOrder, batch: int) -> bool:
    """True if all that a rank issued is what its rounds have there, and one too many would show.

    In rounds of one call, or of one batch of so many, another one does not, nor in the last round
    of a program that ends within one.
    """
    own = read_own_order(order)
    if own is None or own.broken is not None or len(own.tokens) < MANY_ROUNDS * own.period:
        return False
    return own.period > batch and len(set(own.tokens[-own.period :])) > 1


def may_repeat(order: IssuedOrder, index: int, *, alone: bool) -> bool:
    """True if by the rank's own order its collective with that index may be one too many.

    Its rounds have that call, or an earlier one of its group, but not there; or without any, it
    made the call twice at once, ``alone``.
    """
    until = _place_of(order, index)
    if until is None:
        return False
    place = order.issued[until].place
    so_far = replace(order, issued=order.issued[: until + 1])
    own = read_own_order(so_far)
    if own is not None and own.broken is None:
        return False
    by_line = read_own_order(so_far, sized=False)
    if by_line is not None and by_line.broken is None and by_line.tokens[-2] != by_line.tokens[-1]:
        return False  # Of the same call several times in a row one more would be as due.
    known = own is not None and own.is_repeated and own.at_break.place == place
    made = [(one.place, one.numbers.own) for one in order.issued[: until + 1]]
    first: dict[tuple[int, int], int] = {}
    for at, (one, then) in enumerate(pairwise(made), start=1):
        if one == then and one[0] == place:
            first.setdefault(then, at)
    return known or (alone and any(_repeats_at_once(order, at) for at in first.values()))


def _repeats_at_once(order: IssuedOrder, until: int) -> bool:
    """True if the rank's call at a place is the one before it again, as never before.

    And if it made other calls as well, and its line never went on from there to another group: else
    it may be in a loop.
    """
    made = [(one.place, one.numbers.own) for one in order.issued[: until + 1]]
    call = order.issued[until]
    if len(made) < 2 or made[-2] != made[-1] or len(set(made)) < 2:
        return False
    of_line = [one.place for one in order.issued[:until] if one.site == call.site is not None]
    if any(one == call.place != then for one, then in pairwise(of_line)):
        return False
    # Of a line that makes each of its calls twice, whatever the sizes, that is no news.
    again = [
        _lined(one) for one, then in pairwise(order.issued)
        if (one.place, one.numbers.own) == (then.place, then.numbers.own)
    ]  # fmt: skip
    return again.count(_lined(call)) == 1


def _lined(one: IssuedCall) -> tuple[int, int]:
    """A call by its line, where that is known; else by all that is."""
    return one.place, one.numbers.own if one.site is None else one.numbers.lined


def _place_of(order: IssuedOrder, index: int) -> int | None:
    """Place of the collective with that index; None where it is none."""
    places = (at for at, one in enumerate(order.issued) if one.index == index and not one.message)
    return next(places, None)


class OwnOrders:
    """Own orders of all ranks of a small job that have one thread each."""

    def __init__(self, orders: Mapping[int, Sequence[IssuedOrder]]) -> None:
        few = len(orders) <= COMPARED_ORDERS
        self._issued = {rank: one[0] for rank, one in orders.items() if few and len(one) == 1}
        self._orders = {
            rank: own
            for rank, mine in self._issued.items()
            if (own := read_own_order(mine)) is not None
        }

    def edit_at(self, rank: int, index: int) -> Edit | None:
        own = self._orders.get(rank)
        return None if own is None else own.edit_at(index)

    def broken_at(self, rank: int) -> int | None:
        """Index of the entry at which the rank left its order; None where it did not."""
        own = self._orders.get(rank)
        return None if own is None or own.broken is None else own.at_break.index

    def broken_by_one(
        self,
        waited: Mapping[int, int],
        *,
        by_new: bool = False,
        shared: Mapping[int, int] | None = None,
    ) -> int | None:
        """The one of some ranks that broke its rounds up to what it waits in; all others keep them.

        ``waited``: index of the entry in which each of them waits, or of its last.  None where one
        of them has no rounds, or several broke theirs, or the one went on to another phase.  With
        ``by_new``, for others that may be through, the call that it waits in itself breaks its
        rounds only if it is one that it never made before.  ``shared``: by rank how many of its
        calls, from its very first on, others have made alike.
        """
        # Rounds within rounds, or a few of them, may be read in several ways.
        ways = {rank: self._ways_to_read(rank) for rank in waited}
        usual = shared or {}
        broken = [
            rank for rank, read in ways.items()
            if all(own.broken is not None and own.broken >= usual.get(rank, 0) for own in read)
        ]  # fmt: skip
        if not all(ways.values()) or len(broken) != 1:
            return None
        (rank,) = broken
        for own in ways[rank]:
            here = own.at_break.index == waited[rank]
            if here and by_new:
                left = own.is_new  # At the end of its rounds it may do a part of them.
            else:
                left = own.stays_in_loop and own.at_break.index <= waited[rank]
            if left:
                return rank
        return None

    def _ways_to_read(self, rank: int) -> list[OwnOrder]:
        order = self._issued.get(rank)
        if order is None:
            return []
        read = (read_own_order(order, latest_issued=(one,)) for one in LATEST_OF_RING)
        return [own for own in read if own is not None]

    def find(self, ranks: Sequence[int], waits: OpenOperations) -> LeftOrder | None:
        """The departure of the one rank that broke its order, where all ``ranks`` wait.

        Or of the one that keeps it, where all others have left out the operation that it is in.
        """
        if not self._orders.keys() >= set(ranks) or not all(
            rank in waits.by_rank for rank in ranks
        ):
            return None
        broken = [rank for rank in ranks if self._has_broken(rank, waits)]
        in_order = [rank for rank in ranks if rank not in broken]
        if (
            len(broken) == 1
            and len(in_order) >= MOST_IN_ORDER
            and _lacks(broken[0], in_order, waits)
        ):
            own = self._orders[broken[0]]
            if waits.all_issued:  # Then another order alone holds them up.
                return self._departure(broken[0], in_order[0], Edit.SWAPPED) if own.swaps else None
            if not own.whole and own.rounds < MANY_ROUNDS:
                return None  # A few may be rounds within others, of which the ring lost the rest.
            edit = Edit.ADDED if own.edit is Edit.ADDED else None
            if not (edit and own.whole) and self._is_made_by(in_order, own.at_break):
                return None  # Its ring begins within a round.
            if edit is None and not own.is_new:
                return None  # Others tell more of what was left out, or came in another order.
            if edit is None and not own.is_on_its_line:
                # Where its peers have not begun a further round it may have come to the next phase.
                if not all(own.is_behind(self._orders[other]) for other in in_order):
                    return None
                if _is_of_two(own.at_break, waits):
                    return None  # Of these the other one may have left it out.
            return self._departure(broken[0], in_order[0], edit)
        if (
            len(in_order) == 1
            and len(broken) >= MOST_IN_ORDER
            and self._left_out(in_order[0], broken)
        ):
            found = self._departure(in_order[0], broken[0], Edit.ADDED)
            return replace(found, left_by_others=True)
        return None

    def _has_broken(self, rank: int, waits: OpenOperations) -> bool:
        """True if a rank broke its order not behind what it waits in, where its loop may end."""
        own = self._orders[rank]
        waited = [waiting.waiters[rank].index for waiting in waits.first(rank)]
        return own.broken is not None and own.at_break.index <= max(waited)

    def _is_made_by(self, ranks: Sequence[int], call: IssuedCall) -> bool:
        """True if one of ``ranks`` made the very call of another one."""
        return any(call.is_one_with(one) for rank in ranks for one in self._orders[rank].issued)

    def _left_out(self, rank: int, others: Sequence[int]) -> bool:
        """True if all others have left out what ``rank`` is in."""
        waiting = self._orders[rank].issued[-1]
        if waiting.message or waiting.done:
            return False
        for own in (self._orders[other] for other in others):
            at = own.broken
            if at is None or own.edit is not Edit.LEFT_OUT:
                return False
            due = own.issued[at - own.period]
            if (due.place, due.numbers.lined) != (waiting.place, waiting.numbers.lined):
                return False
        return True

    def _departure(self, rank: int, peer: int, edit: Edit | None) -> LeftOrder:
        mine, theirs = self._orders[rank].at_break, self._orders[peer].issued[-1]
        return LeftOrder(
            rank,
            tied=False,
            index=mine.index,
            peer=peer,
            peer_index=theirs.index,
            proved=frozenset(),
            possible=frozenset(),
            predicted=edit,
            messages=mine.message and theirs.message,
            own=True,
        )


def _is_of_two(call: IssuedCall, waits: OpenOperations) -> bool:
    """True if the group of an open collective has two members."""
    group = next((o.group for o in waits.operations.values() if o.key[0] == call.place), None)
    return not call.message and group is not None and len(group.members) == 2


def _lacks(rank: int, others: Sequence[int], waits: OpenOperations) -> bool:
    """True if one of the others may wait for a rank: else its rounds may just have ended."""
    return any(
        rank in waiting.absent or rank in waiting.unknown or rank in waiting.behind
        for other in others
        for waiting in waits.first(other)
    )


def _unlined(one: IssuedCall) -> tuple[int, int]:
    return one.place, one.numbers.plain
