"""A rank that left the order of operations which others keep."""

from __future__ import annotations

from dataclasses import dataclass

from hanglab.analyzer.matching.program_order import Edit


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
    #: What the rounds of those tell who keep the order.
    predicted: Edit | None = None
    #: Both calls at which they part are sends or receives.
    messages: bool = False
    #: It is the rank's own order, which no other one need have.
    own: bool = False
    #: It alone keeps its own order: all others have left out the operation that it is in.
    left_by_others: bool = False
    #: The two calls at which they part are of two groups.
    regrouped: bool = False
    #: They are one call of the program but for their groups.
    alike: bool = False
    #: Its ring has lost the call; numbers of what came behind it tell.
    counted: bool = False
    #: Number, operation and line of its call, in whichever group; None behind its last one.
    call: tuple[int, int] | None = None
    #: Other ranks that left it by that call, too.
    others: tuple[int, ...] = ()
    #: Ranks in its place in other replicas, who keep the order, where no others are compared.
    siblings: tuple[int, ...] = ()

    @property
    def edit(self) -> Edit | None:
        """The one edit that it can be: whoever stands in one call may have the other come next."""
        if len(self.proved) != 1:
            return self.predicted if not self.proved or self.predicted in self.proved else None
        if Edit.SWAPPED in self.possible and self.predicted not in self.proved:
            return None
        return next(iter(self.proved))
