"""The calls of ranks that left no entries, as far as their peers' calls tell."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from hanglab.analyzer.program.program import Action, ProgramGroup


@dataclass(frozen=True)
class RecordedCall:
    """One call of a rank; ``action.site`` numbers the lines of code that calls were made from."""

    action: Action
    finished: bool
    #: The rank goes on before it has finished.
    posted: bool
    #: Sequence number of a collective in its group; None of a send or receive.
    seq: int | None
    created_ns: int


#: Group and sequence number of a collective.
_Place = tuple[int, int]


def peer_of(call: RecordedCall, groups: Sequence[ProgramGroup]) -> int | None:
    """The rank of the job that a message goes to, or comes from; None for any source."""
    peer = call.action.peer
    return None if peer is None else groups[call.action.group].members[peer]


def assume_calls(
    calls: list[list[RecordedCall]], groups: Sequence[ProgramGroup], culprits: Collection[int]
) -> Iterator[tuple[int, bool]]:
    """Give ranks without calls those that their peers show, as far as they got.

    Yields each such rank, and whether it waits in what they wait in; a culprit made only what
    they finished.
    """
    lost = [rank for rank, mine in enumerate(calls) if not mine]
    ahead = _clocks_ahead(calls)
    for rank in lost:
        culprit = rank in culprits
        shown: dict[_Place, tuple[int, RecordedCall]] = {}
        for number, group in enumerate(groups):
            if rank in group.members:
                shown |= _collectives(calls, number, _witnesses(calls, group, culprits), ahead)
        messages = [
            (round(call.created_ns - ahead[peer]), _answer(call, groups, peer))
            for peer, mine in enumerate(calls)
            if peer not in lost
            for call in mine
            if call.seq is None and call.finished and peer_of(call, groups) == rank
        ]
        made = [one for one in shown.values() if one[1].finished or not culprit] + messages
        made.sort(key=lambda one: (not one[1].finished, one[0]))
        # In which order it made those of several groups is a guess: none waits for another.
        calls[rank] = [replace(call, posted=call.posted or call.finished) for _, call in made]
        yield rank, not culprit


def _witnesses(
    calls: Sequence[Sequence[RecordedCall]], group: ProgramGroup, culprits: Collection[int]
) -> list[int]:
    """Members whose calls are known; culprits, who may have made others, only if nobody else is."""
    known = [rank for rank in group.members if calls[rank]]
    return [rank for rank in known if rank not in culprits] or known


def _collectives(
    calls: Sequence[Sequence[RecordedCall]],
    group: int,
    witnesses: Sequence[int],
    ahead: Sequence[float],
) -> dict[_Place, tuple[int, RecordedCall]]:
    """The group's collectives, each with the time at which the first witness made it."""
    found: dict[_Place, tuple[int, RecordedCall]] = {}
    for rank in witnesses:
        for call in calls[rank]:
            if call.action.group == group and call.seq is not None:
                at = round(call.created_ns - ahead[rank])
                found.setdefault((group, call.seq), (at, call))
    return found


def _answer(call: RecordedCall, groups: Sequence[ProgramGroup], rank: int) -> RecordedCall:
    """The other half of a message of ``rank``."""
    me = groups[call.action.group].members.index(rank)
    action = call.action
    op = "recv" if action.op == "send" else "send"
    answer = Action(op, action.group, action.site, action.numel, action.dtype, peer=me)
    return RecordedCall(answer, True, False, None, call.created_ns)


def _clocks_ahead(calls: Sequence[Sequence[RecordedCall]]) -> list[float]:
    """Nanoseconds by which each rank's clock is ahead of the first's.

    Collectives begin at about the same time on all members; where two ranks share none, clocks
    are taken for equal.
    """
    known: dict[_Place, float] = {}
    ahead = [0.0] * len(calls)
    for rank, mine in enumerate(calls):
        times = {(c.action.group, c.seq): c.created_ns for c in mine if c.seq is not None}
        apart = [at - known[place] for place, at in times.items() if place in known]
        ahead[rank] = median(apart) if apart else 0.0
        for place, at in times.items():
            known.setdefault(place, at - ahead[rank])
    return ahead
