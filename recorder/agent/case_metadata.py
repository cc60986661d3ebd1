"""Records of the host and of the whole job, and of what the Case lacks."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from hanglab.recorder.agent.capture import Capture
from hanglab.recorder.agent.rank_ends import UNTOLD, untold
from hanglab.recorder.agent.unregistered_ranks import ESCAPED
from hanglab.recorder.agent.watched_rank import WatchedRank
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.case.records import Absence, HostRecord, JobRecord
from hanglab.recorder.case.writer import clock, write, write_manifest, write_tail
from hanglab.recorder.system.host_name import host_name


class CaseMetadata:
    """Writes host.json, job.json, the end of standard error and the manifest.

    Whatever cannot be written is noted as absent.  ``several``: job.json and the
    manifest are left to whoever commands the agents of all hosts.
    """

    def __init__(
        self,
        case: Path,
        host_folder: Path,
        capture: Capture,
        stderr: tuple[Path, int, Path | None] | None,
        several: bool,
    ) -> None:
        self._case = case
        self._host_folder = host_folder
        self._capture = capture
        #: Standard error of the whole job, and the byte at which it begins there.
        self._stderr = stderr
        self.several = several

    def write_host(self) -> None:
        uname = os.uname()
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        host = HostRecord(host_name(), len(os.sched_getaffinity(0)), memory, uname.release, clock())
        try:
            folders.make_private(self._case)
            write(self._host_folder, files.HOST, host)
        except OSError as error:
            self._capture.miss(files.HOST.name, str(error.strerror))

    def write_job(self, job: JobRecord) -> None:
        if self.several:
            return
        try:
            write(self._case, files.JOB, job)
        except OSError as error:
            self._capture.miss(files.JOB.name, str(error.strerror))

    def write_movements(self, ranks: list[WatchedRank]) -> None:
        """Write the movements that no capture has written."""
        for rank in ranks:
            if not (rank.folder / files.MOVEMENT.name).exists():
                try:
                    write(rank.folder, files.MOVEMENT, rank.movement(time.monotonic()))
                except OSError as error:
                    self._capture.miss(files.MOVEMENT.name, str(error.strerror), rank.rank)

    def write_rank_stderr(self, folder: Path, rank: int, source: str | None) -> None:
        """The end of what a rank that has a standard error of its own wrote there."""
        if source is None:
            return
        try:
            write_tail(folder / files.STDERR.name, Path(source))
        except OSError as error:
            self._capture.miss(files.STDERR.name, str(error.strerror), rank)

    def write_manifest(self, ranks: list[WatchedRank]) -> list[str]:
        """Problems met while it was gathered."""
        self._write_stderr()
        if self.several:
            return []
        try:
            write_manifest(self._case, "hanglab", self.absent(ranks))
        except OSError as error:
            return [f"manifest.json: {error}"]
        return []

    def absent(self, ranks: list[WatchedRank]) -> list[Absence]:
        """Evidence that is missing in the end.

        A rank may have registered after it was attached to, and how it ended may have
        been told late.
        """
        recorded = {rank.rank for rank in ranks if (rank.folder / files.PROGRESS.name).exists()}
        ended = {rank.rank for rank in ranks if rank.exit is not None and not untold(rank.exit)}
        return [
            absence
            for absence in self._capture.absent
            if not (absence.reason == ESCAPED and absence.rank in recorded)
            and not (absence.reason == UNTOLD and absence.rank in ended)
        ]

    def _write_stderr(self) -> None:
        if self._stderr is None:
            return
        source, start, others = self._stderr
        texts: list[bytes] = []
        if others is not None:
            with contextlib.suppress(OSError):
                texts = [text for text in others.read_bytes().split(b"\0") if text]
        try:
            write_tail(self._host_folder / files.STDERR.name, source, start=start, without=texts)
        except OSError as error:
            self._capture.miss(files.STDERR.name, str(error.strerror))
