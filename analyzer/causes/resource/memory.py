"""Memory: ranks that the kernel killed for want of it, and ranks that it slows down."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

from hanglab.analyzer.facts.arrival_lag import arrivals
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.host import HostView, Span
from hanglab.analyzer.facts.resource_failures import CONFIRMED, resource_proposal, size
from hanglab.analyzer.proposal import Order, Proposal, name_ranks, propose
from hanglab.analyzer.verdict import Cause, Effect, Evidence, Status
from hanglab.recorder.case.host_records import MemoryGroup
from hanglab.recorder.slowness.thresholds import LOSS_SHARE

_KILLED = re.compile(r"[Kk]illed process (\d+)")
#: Share of the host's memory below which a kill without a group of its own is believed.
_SCARCE = 0.1
#: Share of its limit from which on a group is at it.
_AT_LIMIT = 0.97
#: Per second: how often the limit was met, and pages were read again or faulted in from disk.
_REFUSALS = 10.0
_PAGES = 100.0
#: Share of the time in which everything on the host waited for memory.
_STALLED = 0.1


def oom_killed(facts: CaseFacts) -> Iterator[Proposal]:
    """SIGKILL of a rank, or of a process that it started, and the kernel's count of such kills."""
    deaths = sorted(_killed_processes(facts), key=lambda d: d[1])
    culprits: list[RankView] = []
    evidence: list[Evidence] = []
    told: dict[str, int] = {}
    for view, _, pid, own in deaths:
        why = _kernel_names(facts.host_of(view.rank), pid) or _counted(facts, view, told)
        if why and view not in culprits:
            culprits.append(view)
            whose = "its process" if own else f"process {pid} that it started"
            evidence.append(Evidence("exit", view.rank, f"{whose} was ended by SIGKILL"))
            evidence.append(Evidence("host", view.rank, why))
    if culprits:
        yield resource_proposal(
            facts,
            Cause.OOM_KILLED,
            culprits,
            "was killed by the kernel for want of memory",
            evidence,
            location=None,
            confidence=CONFIRMED,
        )


def _killed_processes(facts: CaseFacts) -> Iterator[tuple[RankView, int, int, bool]]:
    """(rank, when, pid, whether it is the rank itself) of processes that SIGKILL ended."""
    for view in facts.ranks.values():
        end = view.ended
        if end is not None and (end.signal == signal.SIGKILL or end.code == 128 + signal.SIGKILL):
            yield view, end.at.wall_ns, view.pid or 0, True
        for child in view.children:
            if child.signal == signal.SIGKILL:
                yield view, child.at.wall_ns, child.pid, False


def _kernel_names(host: HostView, pid: int) -> str:
    """The kernel's own line on this process, if there is one."""
    for line in host.kernel:
        match = _KILLED.search(line)
        if match and int(match[1]) == pid:
            return f"the kernel says: {line[:160]}"
    return ""


def _counted(facts: CaseFacts, view: RankView, told: dict[str, int]) -> str:
    """Words if a count of kills has risen that this death, one for each, can account for."""
    host = facts.host_of(view.rank)
    for span in _smallest_first(host, view.rank):
        kills = int(span.grown(lambda group: group.oom_kills))
        if kills > told.get(span.last.path, 0):
            told[span.last.path] = told.get(span.last.path, 0) + 1
            limit = span.last.limit_bytes
            return (
                f"its control group {span.last.path} counts {kills} "
                f"kill{'s' if kills > 1 else ''} for want of memory"
                + (f", at a limit of {size(limit)}" if limit else "")
            )
    elsewhere = sum(int(span.grown(lambda group: group.oom_kills)) for span in host.memory)
    if host.oom_kills > elsewhere + told.get("", 0) and _scarce(host):
        told[""] = told.get("", 0) + 1
        return f"the host counts {host.oom_kills} kills for want of memory, and had hardly any left"
    return ""


def _smallest_first(host: HostView, rank: int) -> list[Span[MemoryGroup]]:
    spans = [span for span in host.memory if rank in span.last.ranks]
    return sorted(spans, key=lambda span: -span.last.path.count("/"))


def _scarce(host: HostView) -> bool:
    return any(
        s.memory_available_bytes is not None
        and s.memory_bytes
        and s.memory_available_bytes < _SCARCE * s.memory_bytes
        for s in host.samples[-5:]
    )


def memory_pressure(facts: CaseFacts) -> Iterator[Proposal]:
    """A job that moves, whose ranks stand at their limit and read again what they had dropped."""
    if facts.stuck or any(v.failed for v in facts.ranks.values()):
        return
    for host in facts.hosts.values():
        for span in host.memory:
            words = _short_of_memory(host, span)
            if not words:
                continue
            ranks = [r for r in span.last.ranks if r in facts.ranks]
            share = _cost(facts, host, ranks)
            if not ranks or share < LOSS_SHARE:
                continue
            yield propose(
                facts,
                Order.SLOW,
                Cause.MEMORY_PRESSURE,
                ranks,
                status=Status.SLOW,
                confidence=CONFIRMED,
                summary=f"{name_ranks(ranks).capitalize()} stands at the memory limit of "
                f"{size(span.last.limit_bytes or span.last.high_bytes)} and spends its time in "
                "getting back what was dropped; the job waits for it.",
                evidence=[Evidence("host", rank, words) for rank in ranks],
                effect=Effect(section=None, ms_per_step=0.0, share_of_step=round(share, 4)),
            )


def _short_of_memory(host: HostView, span: Span[MemoryGroup]) -> str:
    group = span.last
    limit = min((x for x in (group.limit_bytes, group.high_bytes) if x), default=None)
    used = max((g.used_bytes or 0 for g in span.every), default=0)
    if limit is None or span.seconds < 1.0:
        return ""
    met = span.grown(lambda g: g.refused) + span.grown(lambda g: g.slowed)
    refaults = span.grown(lambda g: g.refaults)
    faults = 0
    for rank in group.ranks:
        loads = host.loads(rank)
        if loads:
            faults += loads[-1].major_faults - loads[0].major_faults
    read = max(refaults, float(faults))
    if used < _AT_LIMIT * limit:
        return ""
    if met >= _REFUSALS * span.seconds and read >= _PAGES * span.seconds:
        words = f", met its limit {met / span.seconds:.0f} times a second"
    elif refaults >= _PAGES * span.seconds and not _scarce(host):
        # Where there is no swap, version 1 counts no meetings.  Pages are dropped for want of
        # room in the group or on the host, and the host has room.
        words, read = "", refaults
    else:
        return ""
    return (
        f"its control group {group.path} used {size(used)} of {size(limit)}{words} and read "
        f"{read / span.seconds:.0f} pages a second again"
    )


def _cost(facts: CaseFacts, host: HostView, ranks: list[int]) -> float:
    """Share of the time that the job loses: peers that wait, or everybody who stalls."""
    if set(ranks) < set(facts.ranks):
        found = arrivals(facts)
        return sum(found.share(rank) for rank in ranks) if found is not None else 0.0
    share = host.stalled_share("memory", full=True)
    return share if share >= _STALLED else 0.0
