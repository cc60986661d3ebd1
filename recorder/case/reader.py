"""Reading a Case: whole, damaged, or left behind by a recorder that died.

Nothing here raises once the Case is open.  What is absent or unusable is None
or empty, and a line in ``problems`` says why where a file was there.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.case.file_kinds import EvidenceFile, JsonDocument, Scope
from hanglab.recorder.case.folders import Problems
from hanglab.recorder.case.host_records import HostSample
from hanglab.recorder.case.records import FORMAT, Absence, Manifest
from hanglab.recorder.errors import HanglabError

R = TypeVar("R")

#: More ranks than any job has.  Readers list all ranks of a job, so that a larger number in a
#: Case, which nothing but an altered or damaged file holds, could take all memory.
MOST_RANKS = 1 << 20

_MANIFEST = JsonDocument(
    folders.MANIFEST, Scope.JOB, "every file with size and checksum", lambda: Manifest
)


class NotACase(HanglabError, ValueError):
    """The folder is no Case that this reader can use."""

    advice = "Give the folder that a recorder wrote."


class EvidenceFolder:
    """The evidence files of a job, of one of its hosts, or of one attempt of a rank."""

    def __init__(self, folder: Path, scope: Scope, problems: Problems) -> None:
        self.folder = folder
        #: What could not be used, filled as evidence is read.
        self.problems = problems
        self._scope = scope
        self._decoded: dict[EvidenceFile[Any], Any] = {}

    def read(self, file: EvidenceFile[R]) -> R:
        """Content of a file, None or empty without one.

        Decoded when first asked for, then kept, but for large ones that others decode.
        Raises ValueError for a file that lies in folders of another kind.
        """
        if file.scope is not self._scope:
            raise ValueError(f"{file.name} is a file of each {file.scope.value}.")
        if not file.kept_decoded:
            return file.load(self._path(file), self.problems)
        if file not in self._decoded:
            self._decoded[file] = file.load(self._path(file), self.problems)
        content: R = self._decoded[file]
        return content

    def _path(self, file: EvidenceFile[Any]) -> Path:
        return self.folder / file.name


class RankCase(EvidenceFolder):
    """One attempt of one rank."""

    def __init__(
        self,
        folder: Path,
        host: str,
        rank: int,
        attempt: int,
        problems: Problems,
        captured: bool = False,
    ) -> None:
        """``captured``: as it was at the capture, whatever it wrote later."""
        super().__init__(folder, Scope.RANK, problems)
        self.host = host
        self.rank = rank
        self.attempt = attempt
        self._captured = captured

    @cached_property
    def as_captured(self) -> RankCase:
        """The rank as it was at the capture, where what it wrote later was kept apart."""
        return RankCase(self.folder, self.host, self.rank, self.attempt, self.problems, True)

    def _path(self, file: EvidenceFile[Any]) -> Path:
        if self._captured and file.snapshot:
            snapshot = self.folder / file.snapshot_name
            if os.path.lexists(snapshot):
                return snapshot
        return super()._path(file)


class HostCase(EvidenceFolder):
    """One host, without its ranks."""

    def __init__(self, folder: Path, problems: Problems) -> None:
        super().__init__(folder, Scope.HOST, problems)

    @property
    def samples(self) -> list[HostSample]:
        """Oldest first: those kept in memory are written later than some that are newer."""
        return sorted(self.read(files.SAMPLES), key=lambda sample: sample.at.mono_ns)


class CaseReader(EvidenceFolder):
    """A Case on disk.

    ``hosts`` are by name; ``ranks`` holds the latest attempt of each rank, by rank;
    ``all_attempts`` all of them.  A folder without manifest but with hosts is read too:
    the recorder may have died.  Raises NotACase.
    """

    def __init__(self, path: Path | str) -> None:
        super().__init__(Path(path), Scope.JOB, [])
        self.path = self.folder
        hosts = self.path / folders.HOSTS
        if not _is_folder(self.path):
            raise NotACase(f"{self.path} is not a folder.")
        if not _is_folder(hosts) and not os.path.lexists(self.path / folders.MANIFEST):
            raise NotACase(
                f"{self.path} holds neither {folders.MANIFEST} nor {folders.HOSTS}/, so it is no "
                "Case."
            )
        self.manifest = self.read(_MANIFEST)
        if self.manifest is not None and self.manifest.format > FORMAT:
            raise NotACase(
                f"{self.path} is a Case of the newer format {self.manifest.format}; this hanglab "
                f"reads format {FORMAT}.",
                "Read it with a newer hanglab.",
            )
        self.job = self.read(files.JOB)
        self.hosts: dict[str, HostCase] = {}
        self.all_attempts: list[RankCase] = []
        for host in _folders_in(hosts):
            self.hosts[host.name] = HostCase(host, self.problems)
            for folder in _folders_in(host / folders.RANKS):
                parsed = folders.parse_rank_folder(folder.name)
                if parsed:
                    rank, attempt = parsed
                    self.all_attempts.append(
                        RankCase(folder, host.name, rank, attempt, self.problems)
                    )
        self.all_attempts.sort(key=lambda r: (r.rank, r.attempt))
        self.ranks = list({r.rank: r for r in self.all_attempts}.values())

    @property
    def absent(self) -> list[Absence]:
        return self.manifest.absent if self.manifest is not None else []

    @cached_property
    def world_size(self) -> int | None:
        """Number of ranks that the job should have, as far as anything in the Case says."""
        if self.job is not None:
            size = self._possible(self.job.world_size, self.path / files.JOB.name)
            if size is not None:
                return size
        sizes = [
            self._possible(process.world_size, rank.folder / files.PROCESS.name)
            for rank in self.ranks
            if (process := rank.read(files.PROCESS)) is not None
        ]
        told = Counter(size for size in sizes if size is not None)
        # One that was given another number than most expects ranks that are not there.
        return max(told, key=lambda size: (told[size], size), default=None)

    def _possible(self, size: int | None, path: Path) -> int | None:
        """``size`` where a job can have so many ranks, else None and a problem."""
        if size is None or 1 <= size <= MOST_RANKS:
            return size
        self.problems.append((path, f"says that the job has {size} ranks, which cannot be"))
        return None


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _folders_in(path: Path) -> list[Path]:
    """Real folders below a folder, by name; links are not followed out of the Case."""
    try:
        with os.scandir(path) as entries:
            found = [path / e.name for e in entries if e.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(found)
