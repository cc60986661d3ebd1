"""Ends of waits: the ranks that hold the others up."""

from __future__ import annotations

from hanglab.analyzer.graph.calls_of_ranks import CallsOfRanks
from hanglab.analyzer.graph.due_messages import owes_next
from hanglab.analyzer.graph.new_channels import may_be_misdirected
from hanglab.analyzer.graph.p2p_counts import posted_by_counts
from hanglab.analyzer.graph.roots import WaitEnd, reaching
from hanglab.analyzer.graph.stopped_device import StoppedDevice, meets_another_message
from hanglab.analyzer.graph.wait_for_graph import Sink
from hanglab.analyzer.graph.waits import OpenOperation, OpenOperations
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.calls import Call
from hanglab.recorder.case.operations import op_of


def sink_of(end: WaitEnd, waits: OpenOperations, everybody: set[int], calls: CallsOfRanks) -> Sink:
    """An end of waits in the words of the graph; ``everybody`` are the victims of very many."""
    waiting = _next_awaited(end)
    waiter = min(other for other in waiting.waiters if other != end.rank)
    theirs = calls.call(waiter, waiting.waiters[waiter], waiting.group.group, calls.small)
    own = None
    if waiting.seq is not None and end.kind == "stopped":
        own = calls.lookup.collective(end.rank, waiting.group, waiting.seq)
    awaited = own or Call(
        rank=end.rank,
        group=waiting.group.group,
        seq=waiting.seq,
        op=_other_half(theirs),
        arguments=theirs.arguments,
        peer=waiter if waiting.seq is None else None,
    )
    # Of very many ends, each one's own victims are not told apart.
    victims = (everybody or reaching(waits, [end.rank])) - {end.rank}
    return Sink(
        rank=end.rank,
        awaited=awaited,
        outside=end.kind == "outside",
        unknown=end.kind == "unknown",
        stopped_device=end.kind == "stopped",
        victims=tuple(sorted(victims)),
        last=calls.last(end.rank),
        hidden=end.hidden,
        elsewhere=end.elsewhere,
        by_rounds=end.by_rounds,
    )


def sink_of_device(stopped: StoppedDevice, waits: OpenOperations, calls: CallsOfRanks) -> Sink:
    """The rank whose device alone explains what everybody has issued and nobody finishes."""
    rank = stopped.rank
    pending, oldest = waits.by_rank[rank][0]
    if len(waits.by_rank) == 1:
        own = calls.call(rank, pending, oldest.group.group, full=True)
        return Sink(rank, own, outside=False, stopped_device=True, last=calls.last(rank))
    others = [w for w in waits.operations.values() if w.waiters.keys() - {rank}]
    awaited = [w for w in others if w.peer == rank or rank in w.waiters] or others
    if oldest in awaited:
        awaited = [oldest]
    sink = sink_of(WaitEnd(rank, awaited, "stopped"), waits, set(), calls)
    sink.victims = tuple(sorted(waits.by_rank.keys() - {rank}))
    sink.by_exclusion, sink.unstarted, sink.stalled = True, stopped.unstarted, stopped.stalled
    return sink


def confirm(end: WaitEnd, waits: OpenOperations, lookup: CallLookup) -> None:
    """Sends and receives that could not be counted prove nothing by themselves.

    Nor does a receive that does not finish prove anything of a device, if it is not the one
    for what was sent.
    """
    if end.kind == "stopped" and meets_another_message(end.rank, waits, lookup):
        end.kind = "unknown"
    if end.kind == "outside" and end.awaited:
        if all(may_be_misdirected(waiting, waits, lookup) for waiting in end.awaited):
            end.kind = "unknown"
    if end.kind != "outside" or any(
        waiting.certain or _cannot_be_taken(waiting, waits) for waiting in end.awaited
    ):
        return
    posted = {posted_by_counts(waiting, lookup) for waiting in end.awaited}
    end.by_rounds = not (end.elsewhere or posted - {None}) and owes_next(
        end.rank, end.awaited, lookup
    )
    if False not in posted and not end.by_rounds:
        end.kind = "unknown"


def _cannot_be_taken(waiting: OpenOperation, waits: OpenOperations) -> bool:
    """True for a send that its device has not begun: an older one with its receiver is open.

    Two ranks have one stream, so that nothing of it has left; and one who had posted its receive
    would have that open.  Of a receive that is not so, as small sends end before they are taken.
    """
    ((rank, pending), *_) = waiting.waiters.items()
    if waiting.seq is not None or not op_of(waiting.op).sends or pending.started:
        return False
    return not pending.overtaken and any(
        older.order < pending.order and (other.peer, other.group) == (waiting.peer, waiting.group)
        for older, other in waits.by_rank[rank]
    )


def _next_awaited(end: WaitEnd) -> OpenOperation:
    """The operation that the rank would have to enter next, as far as its waiters show."""
    earliest: dict[int, OpenOperation] = {}
    for waiting in end.awaited:
        if waiting.seq is not None and any(rank != end.rank for rank in waiting.waiters):
            known = earliest.get(waiting.key[0])
            if known is None or waiting.seq < (known.seq or 0):
                earliest[waiting.key[0]] = waiting
    if not earliest:
        others = [w for w in end.awaited if any(rank != end.rank for rank in w.waiters)]
        return min(others, key=lambda w: min(p.order for p in w.waiters.values()))
    # Who waits in one of them and has yet to enter another does the one first.
    first = [
        waiting
        for waiting in earliest.values()
        if not any(
            other is not waiting and not set(waiting.absent).isdisjoint(other.waiters)
            for other in earliest.values()
        )
    ]
    # Of equals the one whose group comes first, whatever the order of the dumps.
    return min(
        first or earliest.values(),
        key=lambda waiting: (
            -len(waiting.waiters),
            waiting.group.members,
            waiting.group.group.name,
        ),
    )


def _other_half(call: Call) -> str:
    if call.seq is None:
        return op_of(call.op).other_half
    return call.op
