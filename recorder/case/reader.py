"""Reading a Case: whole, damaged, or left behind by a recorder that died.

Nothing here raises once the Case is open.  What is absent or unusable is None
or empty, and a line in ``problems`` says why where a file was there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from hanglab.recorder.case import folders
from hanglab.recorder.case.host_records import ConnectionSample, HostSample
from hanglab.recorder.case.progress import NotProgress, read_progress
from hanglab.recorder.case.progress_records import Progress
from hanglab.recorder.case.records import (
    FORMAT,
    Absence,
    ChildExit,
    CodeShape,
    Container,
    Departure,
    Exit,
    Group,
    Host,
    Job,
    LineCount,
    Manifest,
    Movement,
    ProcessSample,
    Raised,
    RankProcess,
    StackSample,
    StragglerLine,
    ThreadWait,
)

T = TypeVar("T")

#: No file of a Case is read beyond these sizes, in bytes.
JSON_LIMIT = 64 << 20
BUFFER_LIMIT = 1 << 30
PROGRESS_LIMIT = 64 << 20

#: More ranks than any job has.  Readers list all ranks of a job, so that a larger number in a
#: Case, which nothing but an altered or damaged file holds, could take all memory.
MOST_RANKS = 1 << 20

Problems = list[tuple[Path, str]]


class NotACase(ValueError):
    """The folder is no Case that this reader can use.

    Its text says why in one sentence, ``advice`` what to do.
    """

    def __init__(
        self, message: str, advice: str = "Give the folder that a recorder wrote."
    ) -> None:
        super().__init__(message)
        self.advice = advice


class RankCase:
    """One attempt of one rank.  Its evidence is decoded when first asked for, then kept."""

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
        self.folder = folder
        self.host = host
        self.rank = rank
        self.attempt = attempt
        self.problems = problems
        self._captured = captured

    @cached_property
    def as_captured(self) -> RankCase:
        """The same as it was at the capture, where what it wrote later was kept apart."""
        return RankCase(self.folder, self.host, self.rank, self.attempt, self.problems, True)

    @cached_property
    def process(self) -> RankProcess | None:
        return self._document(folders.PROCESS, RankProcess)

    @cached_property
    def progress(self) -> Progress | None:
        data = self._bytes(folders.PROGRESS, PROGRESS_LIMIT)
        if data is None:
            return None
        try:
            return read_progress(data)
        except NotProgress as error:
            self._problem(folders.PROGRESS, str(error))
            return None

    @cached_property
    def groups(self) -> list[Group]:
        return self._document(folders.GROUPS, list[Group]) or []

    @property
    def flight_recorder(self) -> bytes | None:
        """torch's own pickle, without stacks; read anew each time."""
        return self._bytes(folders.FLIGHT_RECORDER, BUFFER_LIMIT)

    @property
    def flight_recorder_stacks(self) -> bytes | None:
        """torch's own pickle, with stacks; read anew each time."""
        return self._bytes(folders.FLIGHT_RECORDER_STACKS, BUFFER_LIMIT)

    @cached_property
    def exceptions(self) -> list[Raised]:
        return self._lines(folders.EXCEPTIONS, Raised)

    @cached_property
    def handled(self) -> list[Raised]:
        return self._lines(folders.HANDLED, Raised)

    @cached_property
    def elastic_error(self) -> str:
        """Error file that torch.distributed.elastic had the rank write, as it is; "" without."""
        data = self._bytes(folders.ELASTIC_ERROR, JSON_LIMIT)
        return "" if data is None else data.decode("utf-8", "replace")

    @cached_property
    def waits(self) -> list[ThreadWait]:
        return self._document(folders.WAITS, list[ThreadWait]) or []

    @cached_property
    def stacks(self) -> list[StackSample]:
        return self._lines(folders.STACKS, StackSample)

    @cached_property
    def native_stacks(self) -> list[StackSample]:
        return self._lines(folders.NATIVE_STACKS, StackSample)

    @cached_property
    def processes(self) -> list[ProcessSample]:
        return self._lines(folders.PROCESSES, ProcessSample)

    @cached_property
    def movement(self) -> Movement | None:
        return self._document(folders.MOVEMENT, Movement)

    @cached_property
    def children(self) -> list[ChildExit]:
        return self._lines(folders.CHILDREN, ChildExit)

    @cached_property
    def exit(self) -> Exit | None:
        return self._document(folders.EXIT, Exit)

    @cached_property
    def departures(self) -> list[Departure]:
        return self._lines(folders.DEPARTURES, Departure)

    @cached_property
    def code(self) -> list[CodeShape]:
        return self._document(folders.CODE, list[CodeShape]) or []

    @cached_property
    def lines(self) -> list[LineCount]:
        return self._document(folders.LINES, list[LineCount]) or []

    @cached_property
    def connections(self) -> list[ConnectionSample]:
        return self._lines(folders.CONNECTIONS, ConnectionSample)

    @cached_property
    def straggler(self) -> list[StragglerLine]:
        return self._lines(folders.STRAGGLER, StragglerLine)

    @property
    def traces(self) -> list[bytes]:
        """Profiler traces taken of the rank, latest first; read anew each time."""
        try:
            names = sorted(
                (e.name for e in os.scandir(self.folder / folders.TRACES) if _is_trace(e.name)),
                reverse=True,
            )
        except OSError:
            return []
        found = (self._bytes(f"{folders.TRACES}/{name}", JSON_LIMIT) for name in names)
        return [data for data in found if data is not None]

    @cached_property
    def stderr(self) -> str:
        data = self._bytes(folders.STDERR, JSON_LIMIT)
        return "" if data is None else data.decode("utf-8", "replace")

    def _path(self, name: str) -> Path:
        kept = folders.CAPTURED.get(name) if self._captured else None
        if kept is not None and os.path.lexists(self.folder / kept):
            return self.folder / kept
        return self.folder / name

    def _bytes(self, name: str, limit: int) -> bytes | None:
        return read_regular(self._path(name), limit, self.problems)

    def _document(self, name: str, type_: type[T]) -> T | None:
        return _document(self._path(name), type_, self.problems)

    def _problem(self, name: str, reason: str) -> None:
        self.problems.append((self._path(name), reason))

    def _lines(self, name: str, type_: type[T]) -> list[T]:
        return _lines(self.folder / name, type_, self.problems)


class CaseReader:
    """A Case on disk.

    ``ranks`` holds the latest attempt of each rank, by rank; ``all_attempts``
    all of them.  A folder without manifest but with hosts is read too: the
    recorder may have died.  Raises NotACase.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        #: What could not be used, filled as evidence is read.
        self.problems: Problems = []
        hosts = self.path / folders.HOSTS
        if not _is_folder(self.path):
            raise NotACase(f"{self.path} is not a folder.")
        if not _is_folder(hosts) and not os.path.lexists(self.path / folders.MANIFEST):
            raise NotACase(
                f"{self.path} holds neither {folders.MANIFEST} nor {folders.HOSTS}/, so it is no "
                "Case."
            )
        self.manifest = _document(self.path / folders.MANIFEST, Manifest, self.problems)
        if self.manifest is not None and self.manifest.format > FORMAT:
            raise NotACase(
                f"{self.path} is a Case of the newer format {self.manifest.format}; this hanglab "
                f"reads format {FORMAT}.",
                "Read it with a newer hanglab.",
            )
        self.job = _document(self.path / folders.JOB, Job, self.problems)
        self.hosts: dict[str, Host | None] = {}
        self.all_attempts: list[RankCase] = []
        for host in _folders_in(hosts):
            self.hosts[host.name] = _document(host / folders.HOST, Host, self.problems)
            for folder in _folders_in(host / folders.RANKS):
                parsed = folders.parse_rank_folder(folder.name)
                if parsed:
                    rank, attempt = parsed
                    self.all_attempts.append(
                        RankCase(folder, host.name, rank, attempt, self.problems)
                    )
        self.all_attempts.sort(key=lambda r: (r.rank, r.attempt))
        self.ranks = list({r.rank: r for r in self.all_attempts}.values())

    def samples(self, host: str) -> list[HostSample]:
        """Samples of a host, oldest first; ``host`` is a key of ``hosts``."""
        path = self.path / folders.HOSTS / host / folders.SAMPLES
        found = _lines(path, HostSample, self.problems)
        return sorted(found, key=lambda sample: sample.at.mono_ns)

    def stderr(self, host: str) -> str:
        """The end of what the recorded command wrote on a host, its ranks included."""
        data = read_regular(
            self.path / folders.HOSTS / host / folders.STDERR, JSON_LIMIT, self.problems
        )
        return "" if data is None else data.decode("utf-8", "replace")

    def container(self, host: str) -> Container | None:
        """What the container engine says of a host, if that is a container."""
        path = self.path / folders.HOSTS / host / folders.CONTAINER
        return _document(path, Container, self.problems)

    def nccl_status(self, host: str) -> dict[str, Any] | None:
        """What NCCL's RAS service answered on a host, if it did."""
        path = self.path / folders.HOSTS / host / folders.NCCL_RAS
        return _document(path, dict[str, Any], self.problems)

    @property
    def absent(self) -> list[Absence]:
        return self.manifest.absent if self.manifest is not None else []

    @cached_property
    def world_size(self) -> int | None:
        """Number of ranks that the job should have, as far as anything in the Case says."""
        if self.job is not None:
            size = self._possible(self.job.world_size, self.path / folders.JOB)
            if size is not None:
                return size
        sizes = [
            self._possible(rank.process.world_size, rank.folder / folders.PROCESS)
            for rank in self.ranks
            if rank.process is not None
        ]
        return max((size for size in sizes if size is not None), default=None)

    def _possible(self, size: int | None, path: Path) -> int | None:
        """``size`` where a job can have so many ranks, else None and a problem."""
        if size is None or 1 <= size <= MOST_RANKS:
            return size
        self.problems.append((path, f"says that the job has {size} ranks, which cannot be"))
        return None


def _is_trace(name: str) -> bool:
    return name.endswith(".pt.trace.json")


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


def read_regular(path: Path, limit: int, problems: Problems) -> bytes | None:
    """Content of a regular file; None, and a problem unless it is merely absent."""
    try:
        # A FIFO would block, a link could lead out of the Case.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        problems.append((path, f"cannot be opened: {error.strerror}"))
        return None
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        # fdopen() would refuse a folder, and leave it open.
        os.close(fd)
        problems.append((path, "is not a regular file"))
        return None
    try:
        with os.fdopen(fd, "rb") as file:
            if status.st_size > limit:
                problems.append((path, f"has {status.st_size} bytes, more than {limit}"))
                return None
            return file.read(limit)
    except OSError as error:
        problems.append((path, f"cannot be read: {error.strerror}"))
        return None


def _document(path: Path, type_: type[T], problems: Problems) -> T | None:
    data = read_regular(path, JSON_LIMIT, problems)
    if data is None:
        return None
    decode: Callable[[bytes], T] = msgspec.json.Decoder(type_).decode
    try:
        return decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        problems.append((path, f"is damaged: {error}"))
        return None


def _lines(path: Path, type_: type[T], problems: Problems) -> list[T]:
    """Records of JSON lines; a damaged line is a problem and left out."""
    data = read_regular(path, JSON_LIMIT, problems)
    if data is None:
        return []
    decoder = msgspec.json.Decoder(type_)
    records = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            records.append(decoder.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            problems.append((path, f"line {number} is damaged: {error}"))
    return records
