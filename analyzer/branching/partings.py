"""The call up to which two ranks did alike, and what each did next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hanglab.analyzer.branching.call_sites import CallHistory, ProgramCall
from hanglab.analyzer.branching.program_graph import Chain

#: What a rank does next that has come to the end of its program.
_THE_END = ProgramCall((), True, None, True)


@dataclass(frozen=True)
class CallParting:
    """``last`` is the last call that both made, None where not even the first was the same.

    ``mine`` is what the rank did next, () for the end of its program; where ``called`` is false it
    is no call but the place where the rank is.  ``theirs`` is the peer's next call, without a
    chain where it came to the end of its program.
    """

    index: int
    last: ProgramCall | None
    mine: Chain
    called: bool
    theirs: ProgramCall
    #: By so much the peer's index of a call is larger than the rank's.
    shift: int = 0


def parting_of(
    mine: CallHistory, theirs: CallHistory, by_own_calls: bool, placed: bool = True
) -> CallParting | None:
    """The first difference of two ranks' calls, if it is what the peer waits over.

    Ranks may differ by right from the beginning.  So it counts where the rank itself has gone on
    to its peer's call before, from the same one, and unless ``by_own_calls`` where the peer
    stands in it.  With ``placed`` the places of the calls around it are known.
    """
    shift = shift_of(mine, theirs)
    if shift is None:
        return None
    own, others = mine.sites[shift[0] :], theirs.sites[shift[1] :]
    index = next(
        (i for i, (a, b) in enumerate(zip(own, others, strict=False)) if not same_site(a, b)),
        min(len(own), len(others)),
    )
    if index < len(others):
        next_one = others[index]
    elif index < len(own) and theirs.now and _lacks_its_group(mine, theirs):
        next_one = ProgramCall(theirs.now, True, None, True)
    elif index < len(own) and theirs.now is None and not theirs.died:
        next_one = _THE_END
    else:
        return None
    last = own[index - 1] if index else None
    called = index < len(own)
    if not called and mine.died:
        return None
    now = () if mine.now is None else mine.now
    chain = own[index].chain if called else now
    if placed and not _are_known(last, chain, called or mine.now is not None, next_one):
        return None
    stands = index >= len(others) - 1
    if (by_own_calls or not stands) and not _went_on(own[:index], last, next_one):
        return None
    return CallParting(index + shift[0], last, chain, called, next_one, shift[1] - shift[0])


def _are_known(
    last: ProgramCall | None, chain: Chain, is_somewhere: bool, next_one: ProgramCall
) -> bool:
    """True if there is a place of the last common call, of the rank and of its peer's call."""
    if last is not None and not last.chain:
        return False
    if next_one is not _THE_END and not next_one.chain:
        return False
    return bool(chain) or not is_somewhere


def _lacks_its_group(mine: CallHistory, theirs: CallHistory) -> bool:
    """True if the peer waits in a call that makes a group, and the rank has made one less.

    Who made as many has left out none, whatever the groups are.
    """
    made = mine.groups_made, theirs.groups_made
    return theirs.waits and made[0] is not None and made[1] is not None and made[0] < made[1]


def same_site(one: ProgramCall, other: ProgramCall) -> bool:
    """True if two calls of an operation were made at one place.

    By a rank without stacks only the innermost place is known.
    """
    if one.operation != other.operation:
        return False
    if one.whole and other.whole:
        return one.chain == other.chain
    return one.chain[-1:] == other.chain[-1:]


def _went_on(sites: Sequence[ProgramCall], last: ProgramCall | None, to: ProgramCall) -> bool:
    if last is None:
        return False
    return any(
        same_site(before, last) and same_site(after, to) for before, after in pairwise(sites)
    )


def shift_of(mine: CallHistory, theirs: CallHistory) -> tuple[int, int] | None:
    """Indices in two histories from which on their calls are held against each other."""
    if mine.whole and theirs.whole:
        return 0, 0
    places = {site.key: i for i, site in enumerate(theirs.sites) if site.key is not None}
    for i, site in enumerate(mine.sites):
        if site.key in places:
            return i, places[site.key]
    return None
