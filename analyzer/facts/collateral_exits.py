"""Ranks that somebody else ended: the launcher, after a peer's failure, or whoever ended the job.

Their ends say nothing of the cause.  What a launcher does not end at once it
ends later, and a rank may answer its signal in any way: with an exception, with
a code, even with success.
"""

from __future__ import annotations

import re
import signal
from dataclasses import replace
from functools import partial

from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.error_texts import ABORTED, gave_up
from hanglab.analyzer.facts.failures import Failure, failure_of
from hanglab.analyzer.facts.thresholds import END_BLUR_NS
from hanglab.analyzer.verdict import Cause
from hanglab.recorder.case import evidence_files as files

#: Signals by which launchers end the ranks that are left.
_SENT = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_KILL = frozenset({signal.SIGKILL})
#: What torchrun's agent says of each process that it asks to end
#: (torch/distributed/elastic/multiprocessing/api.py).
_ASKED = re.compile(r"Sending process (\d{1,9}) closing signal ")


def failures(facts: CaseFacts) -> list[Failure]:
    """Failures of ranks, one of each; collateral ones are marked."""
    found = [t for view in facts.ranks.values() if (t := failure_of(view)) is not None]
    return mark_collateral(facts, found)


def mark_collateral(facts: CaseFacts, found: list[Failure]) -> list[Failure]:
    for those in (
        partial(_asked_to_end, facts),
        _ended_after_failure,
        partial(_ended_together, facts),
        partial(_killed, facts),
    ):
        ranks = {t.view.rank for t in those(found)}
        found = [
            replace(t, consequence=True, collateral=True) if t.view.rank in ranks else t
            for t in found
        ]
    found = _after_first_sticky(_left_within_operations(facts, found))
    return _lost_no_rank(_aborted_for_no_reason(facts, found))


def _asked_to_end(facts: CaseFacts, found: list[Failure]) -> list[Failure]:
    """Ranks that their launcher says to have ended."""
    asked = {
        (name, int(pid))
        for name, host in facts.hosts.items()
        for pid in _ASKED.findall(host.read(files.HOST_STDERR))
    }
    return [t for t in found if _ended_by(t, _SENT | _KILL) and (t.view.host, t.view.pid) in asked]


def _lost_no_rank(found: list[Failure]) -> list[Failure]:
    """Errors of connections that need not be to ranks, of who failed before all others.

    Nobody had ended by then, so that what it lost was something else: a server, a pipe of its own.
    """
    times = {t.view.rank: t.at_ns for t in found if t.at_ns is not None and not t.collateral}
    return [
        replace(t, consequence=False)
        if t.consequence
        and t.foreign
        and t.at_ns is not None
        and all(t.at_ns + END_BLUR_NS < at for rank, at in times.items() if rank != t.view.rank)
        else t
        for t in found
    ]


def _aborted_for_no_reason(facts: CaseFacts, found: list[Failure]) -> list[Failure]:
    """Ranks whose communicators were aborted, though nobody had failed or lost patience.

    Peers that live and wait have brought nothing about: the program aborted there by itself.
    """
    impatient = any(t.gave_up for t in found) or any(
        gave_up(view.stderr) for view in facts.ranks.values()
    )
    alive = any(view.ended is None for view in facts.ranks.values())
    if not alive or impatient or not all(ABORTED.search(t.text) for t in found):
        return found
    return [replace(t, consequence=False) for t in found]


def _left_within_operations(facts: CaseFacts, found: list[Failure]) -> list[Failure]:
    """Aborts at the end of a rank whose thread still waits in an operation for a peer.

    The interpreter cannot end beside it: what holds the operation up is the reason.
    """
    waiting = {wait.call.rank for wait in facts.graph.waits if wait.on}
    return [
        replace(t, consequence=True) if t.cause is Cause.TEARDOWN and t.view.rank in waiting else t
        for t in found
    ]


def _after_first_sticky(found: list[Failure]) -> list[Failure]:
    """Device errors of several ranks: the first may be why the others follow.

    A GPU reads its peers' memory, and what one leaves broken breaks the next.
    """
    times = [t.at_ns for t in found if t.sticky and not t.consequence and t.at_ns is not None]
    if not times:
        return found
    last_ns = min(times) + END_BLUR_NS
    return [
        replace(t, consequence=True) if t.sticky and (t.at_ns or 0) > last_ns else t for t in found
    ]


def _ended_after_failure(found: list[Failure]) -> list[Failure]:
    """Ranks that somebody else ended after another rank had failed by itself, or had given up.

    That is what a launcher does to those that are left: it asks first and kills later.
    """
    collateral = _failed_after_an_end(found)
    for sent, blur_ns in ((_KILL | _SENT, 0), (_SENT, END_BLUR_NS)):
        first = min(
            (t.at_ns for t in found if t.at_ns is not None and (t.differs or _is_first(t, sent))),
            default=None,
        )
        # Who lost the connection lost it to somebody: a launcher acts when that one has ended.
        acted = min((end for t in found if t.consequence and (end := _failed_at(t))), default=None)
        for t in found:
            if _ended_by(t, sent) and t.at_ns is not None:
                after_first = first is not None and t.at_ns >= first - blur_ns
                patience_ns = 0 if _ended_by(t, _SENT) else END_BLUR_NS
                if after_first or (acted is not None and t.at_ns >= acted + patience_ns):
                    collateral.append(t)
    return collateral


def _is_first(failure: Failure, sent: frozenset[signal.Signals]) -> bool:
    """True if a launcher may have acted on it, and nobody's end is behind it."""
    return not _ended_by(failure, sent) and (not failure.consequence or failure.gave_up)


def _failed_at(failure: Failure) -> int | None:
    """Time at which the rank was noted to have ended badly by itself."""
    end = failure.view.ended
    if end is None or not failure.view.failed or end.signal in _SENT | _KILL:
        return None
    return end.at.wall_ns


def _failed_after_an_end(found: list[Failure]) -> list[Failure]:
    """Ranks that failed without a word, or raised, once a launcher knew of another's failure.

    A handler of the signal by which it ends the others may leave in any way it likes.
    """
    ends = [(end, t) for t in found if _is_first(t, _SENT) and (end := _failed_at(t)) is not None]
    if not ends:
        return []
    end_ns, first = min(ends, key=lambda end: (end[0], end[1].view.rank))
    late = [
        t
        for t in found
        if t is not first
        and not t.consequence
        and t.at_ns is not None
        and t.at_ns > end_ns
        # No signal brings a device error about; a peer that had waited for it gave up.
        and not (t.sticky and first.gave_up)
    ]
    return [t for t in late if t.source == "exceptions" or (t.at_ns or 0) > end_ns + END_BLUR_NS]


def _ended_together(facts: CaseFacts, found: list[Failure]) -> list[Failure]:
    """Ranks that were asked to end where nobody can tell which of them was the first.

    Whoever asked all of them is no part of the job; or a launcher acted on the first at
    once.  Only a node that ends as a whole, and alone, is the one that was struck.
    """
    asked = [t for t in found if _ended_by(t, _SENT) and not t.consequence]
    first = min((t.at_ns or 0 for t in asked), default=0)
    early = [t for t in asked if (t.at_ns or 0) <= first + END_BLUR_NS]
    if len(early) < 2:
        return [t for t in asked if t not in early]
    ranks = {t.view.rank for t in early}
    hosts = {t.view.host for t in early}
    there = {rank for rank, view in facts.ranks.items() if view.host in hosts}
    struck = len(hosts) == 1 and there == ranks and len(facts.ranks) > len(there)
    return [t for t in asked if not (struck and t in early)]


def _killed(facts: CaseFacts, found: list[Failure]) -> list[Failure]:
    """Ranks of a job that SIGKILL ended as a whole, but for one that was alone the first.

    No rank does that to itself, and of those that a kernel picks some stay.
    """
    killed = [t for t in found if _ended_by(t, _KILL)]
    if len(killed) < 2 or {t.view.rank for t in killed} != {*facts.ranks}:
        return []
    last_ns = min(t.at_ns or 0 for t in killed) + END_BLUR_NS
    early = [t for t in killed if (t.at_ns or 0) <= last_ns]
    return [t for t in killed if len(early) > 1 or t not in early]


def ended_at_once(facts: CaseFacts) -> set[signal.Signals]:
    """Signals that ended all ranks within a blur, by which others end a job; else none."""
    ends = [view.ended for view in facts.ranks.values()]
    if not ends or facts.inputs.missing_ranks or None in ends:
        return set()
    times = [end.at.wall_ns for end in ends if end is not None]
    signals = {end.signal for end in ends if end is not None}
    together = max(times) - min(times) <= END_BLUR_NS
    if not together or not signals <= _SENT | _KILL:
        return set()
    return {signal.Signals(number) for number in signals if number is not None}


def ended_by_others(failure: Failure) -> bool:
    """True where the failure is no more than an end by a signal that others send."""
    end = failure.view.ended
    return failure.source == "exit" and end is not None and end.signal in _SENT | _KILL


def _ended_by(failure: Failure, sent: frozenset[signal.Signals]) -> bool:
    """Of an end that nobody told of it may have been any signal."""
    end = failure.view.ended
    if end is None or failure.source != "exit":
        return False
    return end.vanished or end.signal in sent


def ended_before_failures(view: RankView, found: list[Failure]) -> bool:
    """True if the rank's end may be why its peers lost it, or gave it up.

    A rank that answers a launcher's signal with code 0 was still there when they gave up.
    """
    end = view.ended
    limits = [
        t.at_ns if t.gave_up else max(t.at_ns + END_BLUR_NS, _failed_at(t) or 0)
        for t in found
        if t.at_ns is not None and not t.collateral
    ]
    return end is not None and (not limits or _left_at(view, end.at.wall_ns) <= min(limits))


def _left_at(view: RankView, end_ns: int) -> int:
    """Time when the rank left its program: its interpreter may take seconds to end then."""
    # What sys.exit raises may have been caught; then more follows.
    last = [one.at.wall_ns for one in view.program_ends[-1:] if one.how in ("end", "os._exit")]
    return min([end_ns, *last])
