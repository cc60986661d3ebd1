"""Ranks for which their peers waited until a time limit of theirs struck.

The limit says how long they waited, and when they stopped; on NCCL the watchdog prints it.  Who
had not come to the operation by then is late, whether it never came or came to find nobody;
whoever waited elsewhere in the meantime is a victim like them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView, collective_ref
from hanglab.analyzer.facts.collateral_exits import failures
from hanglab.analyzer.facts.error_texts import WATCHDOG_TIMEOUT
from hanglab.analyzer.facts.failures import Failure
from hanglab.analyzer.flight_recorder.columns import ABSENT
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.proposal import Proposal, detector, propose
from hanglab.analyzer.strengths import ALTERNATIVE, SEEN
from hanglab.analyzer.verdict import Cause, Evidence, Location, Status
from hanglab.analyzer.wording import name_ranks


@dataclass(frozen=True)
class _AbandonedWait:
    """The operation that was given up, from when to when it was waited for, and by whom."""

    call: Call
    since_ns: int
    until_ns: int
    ranks: tuple[int, ...]
    #: What a watchdog printed of it, by rank.
    printed: dict[int, str] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return (self.until_ns - self.since_ns) / 1e9


@detector
def given_up(facts: CaseFacts) -> Iterator[Proposal]:
    """``rank0_work`` of late ranks that were at work all the while, else ``missing_rank``."""
    if not facts.case or facts.stuck or facts.graph.divergences or facts.graph.cycles:
        return
    found = failures(facts)
    if any(not failure.consequence for failure in found):
        return  # an earlier event is the root
    abandoned = _abandoned_wait(facts, found) or _caught_by_watchdog(facts)
    if abandoned is None:
        return
    late = _late(facts, abandoned)
    if not late or len(late) > len(abandoned.ranks):
        return
    unwatched_s = _unwatched_s(facts, abandoned)
    busy = all(_was_at_work(facts.ranks[rank], abandoned, unwatched_s) for rank in late)
    cause = Cause.RANK0_WORK if busy else Cause.MISSING_RANK
    call, names = abandoned.call, name_ranks(sorted(late)).capitalize()
    doing = ", being at work that only it does" if busy else ""
    yield propose(
        facts,
        cause,
        sorted(late),
        status=Status.FAILED,
        confidence=SEEN,
        summary=f"{names} did not come to {call.op} number {call.seq} within the "
        f"{abandoned.seconds:.1f} s that {name_ranks(abandoned.ranks)} waited{doing}; then their "
        "time limit struck.",
        evidence=[
            *(Evidence("progress", rank, _words(came, abandoned)) for rank, came in late.items()),
            *(Evidence(t.source, t.view.rank, t.detail) for t in found if t.gave_up),
            *(Evidence("stderr", rank, line) for rank, line in abandoned.printed.items()),
        ],
        location=_place(facts, late),
        collective=collective_ref(call),
        alternatives=[(Cause.MISSING_RANK, sorted(late), ALTERNATIVE)] if busy else [],
    )


def _abandoned_wait(facts: CaseFacts, found: list[Failure]) -> _AbandonedWait | None:
    """The operation that the first to give up had waited in, together with its peers."""
    gave_up = sorted(
        (t for t in found if t.gave_up and t.at_ns is not None and t.source == "exceptions"),
        key=lambda t: (t.at_ns or 0, t.view.rank),
    )
    first = gave_up[0].view.rank if gave_up else ABSENT
    call = facts.blocked(first) or _failed_last(facts, first)
    if call is None or call.seq is None:
        return None
    entries = {t.view.rank: _entered(facts, t.view.rank, call) for t in gave_up}
    waited = {rank: at for rank, at in entries.items() if at is not None}
    until_ns = gave_up[0].at_ns
    if call.rank not in waited or until_ns is None:
        return None
    return _AbandonedWait(call, waited[call.rank], until_ns, tuple(sorted(waited)))


def _failed_last(facts: CaseFacts, rank: int) -> Call | None:
    """The last operation of a rank on gloo, whose buffer calls finished what failed, too."""
    call, dump = facts.graph.last_calls.get(rank), facts.dumps.get(rank)
    if call is None or dump is None or dump.entries is None or not call.completed:
        return None
    backends = {operation.backend for operation in dump.entries.operations}
    return call if backends == {"gloo"} else None


def _caught_by_watchdog(facts: CaseFacts) -> _AbandonedWait | None:
    """The open operation of which watchdogs have said that its time limit struck."""
    caught = {
        rank: match
        for rank, view in facts.ranks.items()
        if (match := WATCHDOG_TIMEOUT.search(view.stderr)) is not None
    }
    calls = [call for rank in caught if (call := facts.blocked(rank)) is not None]
    if not calls or calls[0].seq is None:
        return None
    call = calls[0]
    entries = {rank: _entered(facts, rank, call) for rank in caught}
    waited = {rank: at for rank, at in entries.items() if at is not None}
    if call.rank not in waited:
        return None
    since_ns = waited[call.rank]
    until_ns = since_ns + int(caught[call.rank]["waited_ms"]) * 1_000_000
    printed = {rank: match[0] for rank, match in caught.items() if rank in waited}
    return _AbandonedWait(call, since_ns, until_ns, tuple(sorted(waited)), printed)


def _place(facts: CaseFacts, late: dict[int, int | None]) -> Location | None:
    """Location of the one that never came, if it lives."""
    rank = min(late)
    view = facts.ranks[rank]
    return view.location() if late[rank] is None and view.ended is None else None


def _entered(facts: CaseFacts, rank: int, call: Call) -> int | None:
    """Time when the rank entered its part of an operation, on the job's clock; None if never."""
    dump = facts.dumps.get(rank)
    if dump is None or dump.entries is None or call.seq is None:
        return None
    entries = dump.entries
    mine = entries.in_group(call.group.name) & (entries.seq == call.seq) & ~entries.is_p2p
    entered = entries.created_ns[mine]
    return int(entered[0]) - facts.ranks[rank].clock_ahead_ns if len(entered) else None


def _late(facts: CaseFacts, abandoned: _AbandonedWait) -> dict[int, int | None]:
    """Members that had not come when the first gave up, and when they came; {} if that is open."""
    late: dict[int, int | None] = {}
    for rank in abandoned.call.group.members:
        view = facts.ranks.get(rank)
        if view is None or view.progress is None or rank not in facts.dumps:
            return {}
        if rank in abandoned.ranks:
            continue
        came = _entered(facts, rank, abandoned.call)
        if came is None:
            sink = facts.sink(rank)
            if sink is None and not _tells_all(facts, rank):
                continue
            if sink is not None and (not sink.outside or sink.hidden):
                continue
        elif came <= abandoned.until_ns:
            continue
        if not _waited_elsewhere(view, abandoned):
            late[rank] = came
    return late


def _tells_all(facts: CaseFacts, rank: int) -> bool:
    """True if the rank's dump would hold what it had entered last, and nothing of it is open.

    Where all has ended nobody is seen to wait for it.
    """
    dump = facts.dumps[rank]
    return not (
        facts.graph.waits or dump.boundary_only or dump.damage or facts.graph.unfinished.get(rank)
    )


def _waited_elsewhere(view: RankView, abandoned: _AbandonedWait) -> bool:
    """True if the rank spent half of the time, or more, in operations with others."""
    spent = 0
    for operation in view.progress.operations if view.progress else []:
        begin = operation.entered_ns - view.clock_ahead_ns
        end = operation.wait_returned_ns or operation.returned_ns
        if operation.wait_entered_ns is not None and operation.wait_returned_ns is None:
            end = None
        until = abandoned.until_ns if end is None else end - view.clock_ahead_ns
        spent += max(0, min(until, abandoned.until_ns) - max(begin, abandoned.since_ns))
    return 2 * spent >= abandoned.until_ns - abandoned.since_ns


def _unwatched_s(facts: CaseFacts, abandoned: _AbandonedWait) -> float:
    """Seconds of the wait that were over when the recorder's agent began to look at ranks."""
    began_ns = facts.job.started.wall_ns if facts.job is not None else abandoned.since_ns
    return max(0, began_ns - abandoned.since_ns) / 1e9


def _was_at_work(view: RankView, abandoned: _AbandonedWait, unwatched_s: float) -> bool:
    """True if no rest of the rank's was as long as half of the time that its peers waited.

    The first that was seen may have begun before anybody looked.
    """
    movement = view.movement
    limit = abandoned.seconds / 2
    if movement is None or movement.longest_pause_s + unwatched_s >= limit:
        return False
    # Of one that came, what it did after its own failure says nothing.
    return movement.quiet_s < limit or bool(view.exceptions)


def _words(came_ns: int | None, abandoned: _AbandonedWait) -> str:
    what = f"{abandoned.call.op} number {abandoned.call.seq}"
    if came_ns is None:
        return f"never entered {what}"
    return f"entered {what} {(came_ns - abandoned.since_ns) / 1e9:.1f} s after its peers"
