"""Two ranks' orders beside each other, where they part, and what tells of which left the order."""

from __future__ import annotations

from dataclasses import dataclass

from hanglab.analyzer.graph.call_balance import find_imbalance
from hanglab.analyzer.graph.issued_orders import IssuedCall, IssuedOrder
from hanglab.analyzer.matching.predicted_edits import goes_on, leaves_out, predict_edit
from hanglab.analyzer.matching.program_order import Edit, Parting, Token


@dataclass(frozen=True)
class PartedOrders:
    """Two orders, and where they part by edits of the first.

    ``here`` and ``there`` are the operations that are compared, ``tokens`` as both would name them.
    """

    mine: IssuedOrder
    theirs: IssuedOrder
    parting: Parting
    here: list[IssuedCall]
    there: list[IssuedCall]
    tokens: tuple[list[Token], list[Token]]
    #: They part in what a ring has lost, by the counts of what follows; ``parting`` has the first
    #: calls that are left of the group in which they do.
    counted: bool = False

    @property
    def reversed(self) -> PartedOrders:
        first, second = self.tokens
        return PartedOrders(
            self.theirs,
            self.mine,
            self.parting.reversed,
            self.there,
            self.here,
            (second, first),
            self.counted,
        )

    @property
    def calls(self) -> tuple[IssuedCall | None, IssuedCall | None]:
        """The calls at which the two part; None for an end."""
        at, there = self.parting.mine, self.parting.theirs
        return (
            self.here[at] if at < len(self.here) else None,
            self.there[there] if there < len(self.there) else None,
        )

    @property
    def groups(self) -> frozenset[int]:
        """Places of the groups of the calls at which they part."""
        return frozenset(call.place for call in self.calls if call is not None)

    @property
    def is_of_one_program(self) -> bool:
        """False if no edit makes one of the other, from calls of groups that but one of them has.

        In groups that both have a rank may have left their order by more than one edit.
        """
        edited = self.counted or self.parting.proved or self.parting.possible
        return bool(edited) or self.groups <= self.mine.places & self.theirs.places

    @property
    def is_of_own_group(self) -> bool:
        """True if the second's call is one that the first was to take part in."""
        _, theirs = self.calls
        return theirs is not None and theirs.place in self.mine.places

    @property
    def breaks_rounds(self) -> bool:
        """True if the first left the rounds that it had repeated, and the other one kept to them.

        By a call of the same rounds that was not due: a new phase may be one that the other has
        yet to come to.
        """
        first, second = self.tokens
        parting = self.parting
        return leaves_out(first, parting.mine) and goes_on(second, parting.theirs)

    @property
    def predicted(self) -> Edit | None:
        """The edit of the first that the rounds of the other tell."""
        if self._is_made_later:
            # Nothing too many: it is at the very operation of its peers.  So is the other one?
            return self._told_by_counts if self.reversed._is_made_later else Edit.LEFT_OUT
        return predict_edit(*self.tokens, self.parting)

    @property
    def _told_by_counts(self) -> Edit | None:
        """The edit after which the first counts otherwise in one group, up to the end of both.

        A call in another turn it would have caught up with.
        """
        here, there = self.here[self.parting.mine :], self.there[self.parting.theirs :]
        found = find_imbalance(here, there, self.mine.places & self.theirs.places, several=True)
        return None if found is None else found.edit

    @property
    def _is_made_later(self) -> bool:
        """True if the second makes the very call later at which the first left the order."""
        mine, _ = self.calls
        later = self.there[self.parting.theirs + 1 :]
        return mine is not None and any(mine.is_one_with(other) for other in later)
