"""Faults of messages that no buffer shows any more, because what came before was dropped.

Which send meets which receive is told by counting both, from the first or from a collective that
both ends remember.  Where a buffer has lost what came before, another program leaves the same
files: one that sent once more in the part that is lost, so that the message which seems to lack its
half has it, and the device of whoever waits has stopped.  The same holds where the buffer begins
with an operation that has not ended: what its rank stands in is older, and lost.
"""

from __future__ import annotations

from math import inf

from hanglab.harness.trials.dumps import ring_of
from hanglab.harness.trials.faults import IN_ARGUMENTS, STOPS, Fault
from hanglab.harness.trials.losses import Loss
from hanglab.harness.trials.player import Play, Played
from hanglab.harness.trials.programs import ANY, Program, issues_of


def counts_are_lost(program: Program, play: Play, loss: Loss, fault: Fault) -> bool:
    """True if ``fault`` shows in messages alone, and none of them can be counted.

    ``program`` is the one without it.
    """
    if fault.kind == "drift":
        return False
    if fault.kind in STOPS:
        meetings = _messages_awaited(play, fault)
    else:
        at = fault.value if fault.kind == "extra" else fault.at
        issues = issues_of(program.ranks[fault.rank][fault.thread][at])
        issue = issues[0 if fault.kind in ("extra", "order") else fault.part]
        if issue.peer is None:
            return False
        meetings = {(issue.peer, fault.at)}
        if fault.kind == "peer":
            meetings.add((fault.value, fault.at))
    if not meetings or any(peer == ANY for peer, _ in meetings):
        return False
    if _stands_in_what_is_lost(play, fault.rank, loss):
        return True
    return fault.kind not in IN_ARGUMENTS and not any(
        _is_counted(play, loss, fault, peer, at) for peer, at in meetings
    )


def _messages_awaited(play: Play, fault: Fault) -> set[tuple[int, int]]:
    """Peers, and steps of the culprit, of the messages that show that it stopped.

    Empty where a collective shows it.
    """
    rank, found = fault.rank, set()
    mine = [o for o in play.operations[rank] if o.done == inf]
    if fault.kind == "device_stop":
        issue = issues_of(mine[0].step)[0] if mine else None
        return {(issue.peer, mine[0].at)} if issue is not None and issue.peer is not None else set()
    for operations in play.operations:
        for played in operations:
            if played.done < inf or played.rank == rank:
                continue
            for issue in issues_of(played.step):
                members = play.program.groups[issue.group].members
                if issue.peer is None and rank in members and _lacks(play, rank, played):
                    return set()
                if issue.peer == rank:
                    found.add((played.rank, fault.at))
    return found


def _lacks(play: Play, rank: int, played: Played) -> bool:
    """True if a rank has not issued a collective that another one is in."""

    def issued(operations: list[Played]) -> list[Played]:
        return [
            o for o in operations if o.group == played.group and issues_of(o.step)[0].peer is None
        ]

    before = [o for o in issued(play.operations[played.rank]) if o.number <= played.number]
    return len(issued(play.operations[rank])) < len(before)


def _stands_in_what_is_lost(play: Play, rank: int, loss: Loss) -> bool:
    """True if an older operation has not ended than the first that the rank's buffer holds."""
    ring = ring_of(play, rank, loss)
    if not ring.dropped or rank in loss.missing:
        return False
    kept = {entry.played for entry in ring.entries}
    lost = [o for o in play.operations[rank] if o not in kept]
    return any(o.done == inf and issues_of(o.step)[0].peer is not None for o in lost)


def _is_counted(play: Play, loss: Loss, fault: Fault, peer: int, at: int) -> bool:
    """True if both ends can count their messages up to the culprit's step ``at``."""
    rings = [ring_of(play, rank, loss) for rank in (fault.rank, peer)]
    if not loss.active_only and not any(ring.dropped for ring in rings):
        return True
    marks = [
        {(one.group, one.collective) for one in ring.entries if not one.is_message}
        for ring in rings
    ]
    return any(
        not one.is_message and (one.group, one.collective) in marks[1]
        and (one.played.at < at or one.played.thread != fault.thread)
        for one in rings[0].entries
    )  # fmt: skip
