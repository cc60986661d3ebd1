"""Jobs on this host, found among its processes without being told of any."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hanglab.harness.recording.job_grouping import JobGrouping
from hanglab.harness.recording.running_jobs import is_mine, recorded_case, sees_the_same
from hanglab.harness.report.live.ranks_at_work import agent_case
from hanglab.recorder.attach.registration import process_age
from hanglab.recorder.attach.tree import FoundRank, by_environment, by_stack, has_torch, is_python
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import CaseReader, NotACase
from hanglab.recorder.rank.rank_recognition import is_launcher
from hanglab.recorder.system import procfs
from hanglab.recorder.system.stacks import NoStacks

#: Age in seconds at which a Python process with torch and no rank in its environment is looked
#: at on its stack: by then ``torch.multiprocessing.spawn`` has called its function.
_SPAWNED_S = 15.0
#: How often that look may fail: py-spy may be too slow on a busy host, on which a watch comes last.
_STACK_TRIES = 5
#: A rank that is older than its process by so many seconds is not that process.
_LATE_S = 30.0


@dataclass
class FoundJob:
    """Ranks of one job on this host.  ``key`` stays the same over its restarts."""

    key: tuple[object, ...]
    name: str
    #: Words by which people would know it again after a restart.
    same_job: str
    ranks: dict[int, FoundRank] = field(default_factory=dict)
    #: The Case that it is being recorded into, if any.
    case: Path | None = None

    @property
    def elsewhere(self) -> bool:
        """True if ranks of it run on other hosts, as far as anybody has said how many there are."""
        sizes = [rank.world_size for rank in self.ranks.values() if rank.world_size]
        return max(sizes, default=0) > len(self.ranks)


class JobFinder:
    """Searches the host's processes now and then; what was decided once is not read again."""

    def __init__(self, top: int | None = None) -> None:
        """``top``: look only at processes below this one."""
        self._top = top
        self._grouping = JobGrouping()
        #: Processes by (id, start), with the rank that each is, if it is one.
        self._decided: dict[tuple[int, int], FoundRank | None] = {}
        #: Looks at stacks in vain, by process.
        self._vain: Counter[tuple[int, int]] = Counter()
        #: Processes below each process, parents before children, as of the last search.
        self.below: Mapping[int, list[int]] = {}
        #: Ids of processes by their start.
        self.started: dict[int, int] = {}

    def look(self) -> list[FoundJob]:
        """Every job that has ranks here now, of those whose processes this user may look into."""
        stats = {pid: stat for pid in procfs.everyone() if (stat := procfs.stat(pid)) is not None}
        self.started = {pid: stat.started for pid, stat in stats.items()}
        children: dict[int, list[int]] = {}
        for pid, stat in stats.items():
            children.setdefault(stat.ppid, []).append(pid)
        now = {(pid, stat.started) for pid, stat in stats.items()}
        self._decided = {key: rank for key, rank in self._decided.items() if key in now}
        self._vain = Counter({key: times for key, times in self._vain.items() if key in now})
        found: dict[int, FoundRank] = {}
        self._recorded(stats, found)
        # A process below a rank has its environment and is none.
        below: set[int] = set()
        front = [pid for pid, stat in stats.items() if stat.ppid not in stats]
        if self._top is not None:
            front = list(children.get(self._top, ()))
            inside = {*front, *(one for pid in front for one in _all_below(pid, children))}
            found = {pid: rank for pid, rank in found.items() if pid in inside}
        while front:
            pid = front.pop()
            front += children.get(pid, ())
            stat = stats[pid]
            if stat.ppid in found or stat.ppid in below:
                below.add(pid)
                found.pop(pid, None)
            elif pid not in found and stat.state not in "ZX":
                rank = self._decide(pid, stat)
                if rank is not None:
                    found[pid] = rank
        self.below = {pid: _all_below(pid, children) for pid in found}
        return self._grouped(found)

    def _recorded(self, stats: Mapping[int, procfs.Stat], found: dict[int, FoundRank]) -> None:
        """Ranks that recorders' agents here have in their Cases."""
        for pid, stat in stats.items():
            # Agents are Python's, and few: the name spares a look at everybody's words.
            if not stat.name.startswith("python") or (case := agent_case(pid)) is None:
                continue
            # In a container its words mean other folders, and other processes.
            if not sees_the_same(pid, case):
                continue
            with contextlib.suppress(NotACase, OSError):
                for rank in CaseReader(case).ranks:
                    process = rank.read(files.PROCESS)
                    if process is None or process.pid not in stats:
                        continue
                    # Who is only captured has no counters; an id may be another's by now.
                    if not (rank.folder / files.PROGRESS.name).exists() or (
                        _age_of(process.started.wall_ns)
                        > (process_age(process.pid) or 0.0) + _LATE_S
                    ):
                        continue
                    known = (process.pid, stats[process.pid].started)
                    self._decided[known] = found[process.pid] = FoundRank(
                        process.pid, rank.rank, process.world_size, process.local_rank,
                        rank.attempt, str(case), "",
                    )  # fmt: skip

    def _decide(self, pid: int, stat: procfs.Stat) -> FoundRank | None:
        key = (pid, stat.started)
        if key in self._decided:
            return self._decided[key]
        if stat.kernel or pid == os.getpid() or not is_mine(pid):
            self._decided[key] = None
            return None
        if not is_python(pid) or is_launcher(procfs.command_line(pid)):
            # A shell may yet become one.
            if (process_age(pid) or 0.0) > _SPAWNED_S:
                self._decided[key] = None
            return None
        if not has_torch(pid):
            return None
        rank = by_environment(pid)
        if rank is None:
            if (process_age(pid) or 0.0) < _SPAWNED_S:
                return None
            try:
                rank = by_stack(pid)
            except NoStacks:
                self._vain[key] += 1
                if self._vain[key] < _STACK_TRIES:
                    return None
        self._decided[key] = rank
        return rank

    def _grouped(self, found: Mapping[int, FoundRank]) -> list[FoundJob]:
        jobs = []
        for key, ranks in self._grouping.group(found.values()).items():
            job = FoundJob(key, *_names_of(min(ranks, key=lambda rank: rank.rank)))
            job.ranks = {rank.pid: rank for rank in ranks}
            job.case = next(filter(None, (recorded_case([rank]) for rank in ranks)), None)
            jobs.append(job)
        return jobs


def _age_of(wall_ns: int) -> float:
    return time.time() - wall_ns / 1e9


def _all_below(pid: int, children: Mapping[int, list[int]]) -> list[int]:
    below, front = [], [pid]
    while front:
        front = [child for parent in front for child in children.get(parent, ())]
        below += front
    return below


def _names_of(rank: FoundRank) -> tuple[str, str]:
    """Names of a job: what to call it, and what stays the same when it is started again."""
    environment = procfs.environment(rank.pid)
    if slurm := environment.get("SLURM_JOB_ID"):
        return f"slurm {slurm}", f"slurm {slurm}"
    run = environment.get("TORCHELASTIC_RUN_ID", "none")
    if run != "none":
        return run[:80], run[:80]
    stat = procfs.stat(rank.pid)
    name = f"process {stat.ppid if stat is not None and stat.ppid > 1 else rank.pid}"
    script = next(
        (word for word in procfs.command_line(rank.pid)[1:] if not word.startswith("-")), ""
    )
    return name, script[-200:] or name
