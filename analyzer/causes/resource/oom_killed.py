"""``oom_killed``: ranks that the kernel killed for want of memory."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from hanglab.analyzer.causes.exhaustion import resource_proposal
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.facts.error_texts import KILLED_PROCESS, OOM_EVENTS
from hanglab.analyzer.facts.host import HostView, Span
from hanglab.analyzer.facts.resource_failures import size
from hanglab.analyzer.proposal import Proposal, detector
from hanglab.analyzer.strengths import CONFIRMED
from hanglab.analyzer.verdict import Cause, Evidence
from hanglab.recorder.case.host_records import MemoryGroup


@detector
def oom_killed(facts: CaseFacts) -> Iterator[Proposal]:
    """SIGKILL of a rank, or of a process that it started, and the kernel's count of such kills."""
    deaths = sorted(_killed_processes(facts), key=lambda d: d[1])
    culprits: list[RankView] = []
    evidence: list[Evidence] = []
    told: dict[str, int] = {}
    for view, _, pid, own in deaths:
        why = (
            _kernel_names(facts.host_of(view.rank), pid)
            or _counted(facts, view, told)
            or _scheduler_counts(facts, view, len(deaths))
        )
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
        match = KILLED_PROCESS.pattern.search(line)
        if match and int(match[1]) == pid:
            return f"the kernel says: {line[:160]}"
    return ""


def _scheduler_counts(facts: CaseFacts, view: RankView, deaths: int) -> str:
    """Slurm's line on as many kills as there were deaths, of which it names no process."""
    for line in facts.host_of(view.rank).kernel:
        match = OOM_EVENTS.search(line)
        if match and int(match[1]) >= deaths:
            return f"Slurm says: {line[:160]}"
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
    if host.oom_kills > elsewhere + told.get("", 0) and host.memory_is_scarce:
        told[""] = told.get("", 0) + 1
        return f"the host counts {host.oom_kills} kills for want of memory, and had hardly any left"
    return ""


def _smallest_first(host: HostView, rank: int) -> list[Span[MemoryGroup]]:
    spans = [span for span in host.memory if rank in span.last.ranks]
    return sorted(spans, key=lambda span: -span.last.path.count("/"))
