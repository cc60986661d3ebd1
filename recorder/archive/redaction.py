"""A copy of a Case from which nothing can be read but what explains the hang.

Paths, hosts, users, names of functions and sections, addresses, arguments and
settings are replaced, each by the same word wherever it stands; source lines and
free text go.  What is not known to be a file of a Case is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from hanglab.recorder.archive.buffers import UnsafeBuffer, redact_buffer
from hanglab.recorder.archive.progress_texts import DamagedProgress, redact_progress
from hanglab.recorder.archive.pseudonyms import Pseudonyms
from hanglab.recorder.archive.texts import Texts
from hanglab.recorder.case import folders
from hanglab.recorder.case.host_records import Connection, ConnectionSample, HostSample
from hanglab.recorder.case.reader import (
    BUFFER_LIMIT,
    JSON_LIMIT,
    PROGRESS_LIMIT,
    CaseReader,
    Problems,
    RankCase,
    read_regular,
)
from hanglab.recorder.case.records import (
    Absence,
    ChildExit,
    CodeShape,
    Container,
    Departure,
    Frame,
    Group,
    Host,
    Job,
    LineCount,
    ProcessSample,
    Raised,
    RankProcess,
    StackSample,
    ThreadStack,
    ThreadWait,
)
from hanglab.recorder.case.writer import write_manifest, write_record

T = TypeVar("T")
replace = msgspec.structs.replace

#: Left out: they hold texts of which too little is known.
_DROPPED = (folders.ELASTIC_ERROR, folders.NCCL_RAS)


def redact(reader: CaseReader, target: Path) -> list[str]:
    """Write the copy into ``target``, an empty folder; says what was left out, and why.

    Raises OSError.
    """
    return _Redaction(reader, target).run()


class _Redaction:
    def __init__(self, reader: CaseReader, target: Path) -> None:
        self._reader = reader
        self._target = target
        self._names = Pseudonyms()
        self._texts = Texts(self._names)
        self._left_out: list[str] = []
        for rank in reader.all_attempts:
            if rank.process is not None:
                self._names.learn(rank.process.python)

    def run(self) -> list[str]:
        reader = self._reader
        folders.make_private(self._target)
        if reader.job is not None:
            write_record(self._target / folders.JOB, self._job(reader.job))
        for name, host in reader.hosts.items():
            folder = folders.host_folder(self._target, self._names.host(name))
            if host is not None:
                write_record(folder / folders.HOST, self._host(host))
            self._document(folder / folders.CONTAINER, reader.container(name), self._container)
            self._lines(folder / folders.SAMPLES, reader.samples(name), self._sample)
            self._stderr(
                reader.path / folders.HOSTS / name / folders.STDERR, folder / folders.STDERR
            )
        for rank in reader.all_attempts:
            self._rank(rank)
        self._note_unknown()
        write_manifest(self._target, "hanglab redact", map(self._absence, reader.absent))
        return self._left_out

    def _rank(self, rank: RankCase) -> None:
        folder = folders.rank_folder(
            self._target, self._names.host(rank.host), rank.rank, rank.attempt
        )
        self._document(folder / folders.PROCESS, rank.process, self._process)
        self._document(folder / folders.MOVEMENT, rank.movement, _same)
        self._document(folder / folders.EXIT, rank.exit, _same)
        self._list(folder / folders.GROUPS, rank.groups, self._group)
        self._list(folder / folders.CODE, rank.code, self._shape)
        self._list(folder / folders.LINES, rank.lines, self._line_count)
        self._list(folder / folders.WAITS, rank.waits, self._wait)
        self._lines(folder / folders.STACKS, rank.stacks, self._stack_sample)
        self._lines(folder / folders.PROCESSES, rank.processes, self._process_sample)
        self._lines(folder / folders.CHILDREN, rank.children, self._child)
        self._lines(folder / folders.EXCEPTIONS, rank.exceptions, self._raised)
        self._lines(folder / folders.HANDLED, rank.handled, self._raised)
        self._lines(folder / folders.CONNECTIONS, rank.connections, self._connections)
        self._lines(folder / folders.DEPARTURES, rank.departures, self._departure)
        self._stderr(rank.folder / folders.STDERR, folder / folders.STDERR)
        for name in (folders.FLIGHT_RECORDER, folders.FLIGHT_RECORDER_STACKS):
            for kind in (name, folders.CAPTURED[name]):
                self._bytes(rank.folder / kind, folder / kind, BUFFER_LIMIT, redact_buffer)
        for kind in (folders.PROGRESS, folders.PROGRESS_CAPTURED):
            self._bytes(rank.folder / kind, folder / kind, PROGRESS_LIMIT, redact_progress)
        if (rank.folder / folders.WAITS_CAPTURED).exists():
            # Empty too: without it the later ones would be taken for those of the capture.
            waits = [self._wait(wait) for wait in rank.as_captured.waits]
            write_record(folder / folders.WAITS_CAPTURED, waits)

    # Files.

    def _document(self, path: Path, record: T | None, change: Callable[[T], T]) -> None:
        if record is not None:
            write_record(path, change(record))

    def _list(self, path: Path, records: list[T], change: Callable[[T], T]) -> None:
        if records:
            write_record(path, [change(record) for record in records])

    def _lines(self, path: Path, records: Iterable[T], change: Callable[[T], T]) -> None:
        encoded = [msgspec.json.encode(change(record)) for record in records]
        if encoded:
            folders.make_private(path.parent)
            folders.write_whole(path, b"\n".join(encoded) + b"\n")

    def _stderr(self, source: Path, target: Path) -> None:
        data = self._content(source, JSON_LIMIT)
        if data is not None:
            text = self._texts.lines(data.decode("utf-8", "replace"))
            folders.make_private(target.parent)
            folders.write_whole(target, text.encode())

    def _content(self, source: Path, limit: int) -> bytes | None:
        """Of a file that is not longer than the analyzer would read; the others are left out."""
        problems: Problems = []
        data = read_regular(source, limit, problems)
        self._left_out += [f"{self._shown(path)}: {reason}" for path, reason in problems]
        return data

    def _bytes(
        self,
        source: Path,
        target: Path,
        limit: int,
        change: Callable[[bytes, Pseudonyms], bytes],
    ) -> None:
        content = self._content(source, limit)
        if content is None:
            return
        try:
            data = change(content, self._names)
        except (UnsafeBuffer, DamagedProgress) as error:
            self._left_out.append(f"{self._shown(source)}: {error}")
            return
        folders.make_private(target.parent)
        folders.write_whole(target, data)

    def _note_unknown(self) -> None:
        known = {
            value
            for name, value in vars(folders).items()
            if name.isupper() and isinstance(value, str)
        }
        for folder in {rank.folder for rank in self._reader.all_attempts}:
            for path in sorted(folder.iterdir()):
                if path.name not in known or path.name in _DROPPED:
                    self._left_out.append(f"{self._shown(path)}: not needed for the verdict")

    def _shown(self, path: Path) -> str:
        return path.relative_to(self._reader.path).as_posix()

    # Records.

    def _job(self, job: Job) -> Job:
        trigger = job.trigger
        if trigger is not None:
            trigger = replace(trigger, detail=self._texts.phrase(trigger.detail))
        return replace(job, trigger=trigger)

    def _host(self, host: Host) -> Host:
        names = self._names
        return replace(host, name=names.host(host.name), kernel=names.kernel(host.kernel))

    def _absence(self, absence: Absence) -> Absence:
        return Absence(
            self._texts.phrase(absence.what) if "/" in absence.what else absence.what,
            self._texts.phrase(absence.reason),
            self._names.host(absence.host) if absence.host else None,
            absence.rank,
        )

    def _process(self, process: RankProcess) -> RankProcess:
        return replace(
            process,
            python=self._names.python(process.python),
            argv=[],
            environment={
                name: self._names.value(value) for name, value in process.environment.items()
            },
        )

    def _group(self, group: Group) -> Group:
        names = self._names
        return replace(group, id=names.group(group.id), description=names.group(group.description))

    def _frame(self, frame: Frame) -> Frame:
        names = self._names
        return Frame(names.function(frame.function, frame.file), names.file(frame.file), frame.line)

    def _departure(self, departure: Departure) -> Departure:
        frame = departure.frame
        return replace(departure, frame=self._frame(frame) if frame is not None else None)

    def _thread(self, thread: ThreadStack) -> ThreadStack:
        return replace(
            thread,
            name=self._names.thread(thread.name),
            frames=[self._frame(frame) for frame in thread.frames],
        )

    def _stack_sample(self, sample: StackSample) -> StackSample:
        return replace(sample, threads=[self._thread(thread) for thread in sample.threads])

    def _process_sample(self, sample: ProcessSample) -> ProcessSample:
        return replace(sample, name=self._names.thread(sample.name))

    def _child(self, child: ChildExit) -> ChildExit:
        return replace(child, name=self._names.thread(child.name))

    def _wait(self, wait: ThreadWait) -> ThreadWait:
        return replace(wait, thread_name=self._names.thread(wait.thread_name))

    def _raised(self, raised: Raised) -> Raised:
        return replace(
            raised,
            type=self._texts.exception_type(raised.type),
            message=self._texts.phrase(raised.message),
            frames=[self._frame(frame) for frame in raised.frames],
            thread=self._names.thread(raised.thread),
            because=[self._cause(text) for text in raised.because],
            full=[replace(disk, path=self._names.path(disk.path)) for disk in raised.full],
        )

    def _cause(self, text: str) -> str:
        type_, colon, message = text.partition(": ")
        return self._texts.exception_type(type_) + colon + self._texts.phrase(message)

    def _shape(self, shape: CodeShape) -> CodeShape:
        return replace(
            shape,
            file=self._names.file(shape.file),
            function=self._names.function(shape.function, shape.file),
        )

    def _line_count(self, count: LineCount) -> LineCount:
        return replace(
            count,
            file=self._names.file(count.file),
            function=self._names.function(count.function, count.file),
            section=self._names.section(count.section),
        )

    def _container(self, container: Container) -> Container:
        # An address of a container has no port.
        addresses = [
            self._names.address(f"{one}:0").rpartition(":")[0] for one in container.addresses
        ]
        return replace(container, id=self._names.value(container.id), addresses=addresses)

    def _connections(self, sample: ConnectionSample) -> ConnectionSample:
        return replace(sample, connections=[self._connection(c) for c in sample.connections])

    def _connection(self, connection: Connection) -> Connection:
        names = self._names
        return replace(
            connection,
            local=names.address(connection.local),
            remote=names.address(connection.remote),
        )

    def _sample(self, sample: HostSample) -> HostSample:
        path = self._names.path
        return replace(
            sample,
            pressure=[replace(p, group=path(p.group)) for p in sample.pressure],
            cpu_groups=[replace(g, path=path(g.path)) for g in sample.cpu_groups],
            memory_groups=[replace(g, path=path(g.path)) for g in sample.memory_groups],
            pids_groups=[replace(g, path=path(g.path)) for g in sample.pids_groups],
            spaces=[replace(space, path=path(space.path)) for space in sample.spaces],
            ranks=[
                replace(
                    load,
                    sleeping=[
                        replace(thread, target=path(thread.target)) for thread in load.sleeping
                    ],
                )
                for load in sample.ranks
            ],
            gpus=[replace(gpu, uuid=self._names.value(gpu.uuid)) for gpu in sample.gpus],
            kernel=[self._texts.phrase(line) for line in sample.kernel],
        )


def _same(record: T) -> T:
    return record
