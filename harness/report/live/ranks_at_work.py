"""Ranks of a job that is being recorded, as their Case shows them while they run."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hanglab.recorder.agent.counters import CounterFile
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.case.progress import Counters
from hanglab.recorder.case.reader import CaseReader, RankCase
from hanglab.recorder.case.records import JobRecord, RankProcess
from hanglab.recorder.system import procfs
from hanglab.recorder.system.host_name import host_name

#: Seconds after which a rank whose counters stand still is looked at closely: a step without
#: any section or operation may well take this long.
RESTING_S = 1.0


@dataclass
class RankAtWork:
    """One rank at one moment.  ``pid`` is None, and ``host`` "", where nothing tells."""

    rank: int
    host: str
    pid: int | None
    #: Step that the job has declared, -1 before the first.
    step: int
    #: Steps and operations that it has begun.
    steps: int
    operations: int
    #: Wall time of the last thing that it is known to have done.
    since_ns: int
    #: Seconds for which nothing of it has moved while it was looked at.
    rested_s: float
    #: How it ended; "" while it runs.
    ended: str = ""
    #: It runs on this host.
    here: bool = True

    @property
    def resting(self) -> bool:
        return not self.ended and self.rested_s >= RESTING_S


class JobAtWork:
    """All ranks of a Case that is being written."""

    def __init__(self, case: Path) -> None:
        self.case = case
        self.reader = CaseReader(case)
        self.ranks: list[RankAtWork] = []
        self._watched: dict[Path, _WatchedCounters] = {}

    @property
    def job(self) -> JobRecord | None:
        return self.reader.job

    @property
    def alive(self) -> list[RankAtWork]:
        return [one for one in self.ranks if not one.ended]

    def look(self) -> None:
        """Reads what the ranks have written since.  Raises NotACase where the Case has gone."""
        self.reader = CaseReader(self.case)
        before = self._watched
        self._watched = {
            one.folder: before.get(one.folder) or _WatchedCounters(one) for one in self.reader.ranks
        }
        for folder in before.keys() - self._watched.keys():
            before[folder].file.close()
        self.ranks = [
            self._watched[one.folder].look(one, time.monotonic()) for one in self.reader.ranks
        ]

    def close(self) -> None:
        for one in self._watched.values():
            one.file.close()


class _WatchedCounters:
    """The counters of one rank, and since when they have been as they are."""

    def __init__(self, rank: RankCase) -> None:
        self.file = CounterFile(rank.folder)
        self._moved_at = time.monotonic()

    def look(self, rank: RankCase, now: float) -> RankAtWork:
        if self.file.changes():
            self._moved_at = now
        process, counters = rank.read(files.PROCESS), self.file.counters
        return RankAtWork(
            rank=rank.rank,
            host=rank.host,
            pid=process.pid if process is not None else None,
            step=counters.step if counters is not None else -1,
            steps=counters.steps_total if counters is not None else 0,
            operations=counters.operations_total if counters is not None else 0,
            since_ns=_since_ns(process, counters),
            rested_s=now - self._moved_at,
            ended=_ended(rank, process),
            here=_is_here(rank),
        )


def _since_ns(process: RankProcess | None, counters: Counters | None) -> int:
    begun = process.started.wall_ns if process is not None else 0
    if counters is None:
        return begun
    return max(begun, counters.operation_event_ns, counters.section_event_ns)


def _ended(rank: RankCase, process: RankProcess | None) -> str:
    end = rank.read(files.EXIT)
    if end is not None:
        return end.words
    if process is not None and _is_here(rank) and procfs.has_ended(process.pid):
        return "has ended"
    return ""


def _is_here(rank: RankCase) -> bool:
    case = rank.folder.parents[3]
    return folders.host_folder(case, host_name()).name == rank.host


def agents_of(case: Path) -> list[int]:
    """Processes of this host that record into a Case."""
    wanted = os.path.realpath(case)
    return [pid for pid, path in agents() if os.path.realpath(path) == wanted]


def agents() -> Sequence[tuple[int, Path]]:
    """The recorder's agents on this host, each with the Case that it writes."""
    return [(pid, case) for pid in procfs.everyone() if (case := agent_case(pid))]


def agent_case(pid: int) -> Path | None:
    """The Case that a process writes as a recorder's agent; None where it is none."""
    return _told(pid, "--case")


def runtime_of(case: Path) -> Path | None:
    """The folder in which the ranks of a Case listen on this host; None where nobody tells."""
    for pid in agents_of(case):
        if folder := _told(pid, "--runtime"):
            return folder
    for rank in CaseReader(case).ranks:
        process = rank.read(files.PROCESS)
        told = procfs.environment(process.pid) if process is not None else {}
        if told.get("HANGLAB_RUNTIME") and _is_here(rank):
            return Path(told["HANGLAB_RUNTIME"])
    return None


def _told(agent: int, option: str) -> Path | None:
    """A folder that an agent was started with; None where the process is no agent."""
    words = procfs.command_line(agent)
    if "hanglab.recorder.agent" not in words or option not in words[:-1]:
        return None
    return Path(words[words.index(option) + 1])
