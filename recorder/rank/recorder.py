"""The recorder of one rank: puts the parts together and writes what they find."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders, layout
from hanglab.recorder.case import user_code as ownership
from hanglab.recorder.case.file_kinds import EvidenceFile, JsonLines
from hanglab.recorder.case.layout import Slot
from hanglab.recorder.rank import dump, process
from hanglab.recorder.rank.bare_backends import Backends
from hanglab.recorder.rank.batch_fetches import FetchWatch
from hanglab.recorder.rank.batch_sizes import BatchSizes
from hanglab.recorder.rank.boundary import Boundary
from hanglab.recorder.rank.branches import recording as branches
from hanglab.recorder.rank.branches.ring import leave_compiled_code_alone
from hanglab.recorder.rank.call_site import CallSites
from hanglab.recorder.rank.child_exits import ChildWatch
from hanglab.recorder.rank.code_shapes import raised_code, standing_code
from hanglab.recorder.rank.error_guard import GUARD, is_the_jobs, undisturbed
from hanglab.recorder.rank.exceptions import ExceptionWatch, describe
from hanglab.recorder.rank.function_changes import FunctionChanges
from hanglab.recorder.rank.gc_pauses import PauseWatch
from hanglab.recorder.rank.graph_replays import GraphReplays
from hanglab.recorder.rank.group_creation import GroupCalls
from hanglab.recorder.rank.group_members import GroupMembers
from hanglab.recorder.rank.handled_exceptions import (
    HandledWatch,
    ends_the_process,
    pending_exceptions,
)
from hanglab.recorder.rank.imports import AfterImport
from hanglab.recorder.rank.line_samples import LineSampler
from hanglab.recorder.rank.loader_queues import LoaderQueues
from hanglab.recorder.rank.loader_waits import LoaderWatch
from hanglab.recorder.rank.optimizer_steps import UpdateWatch
from hanglab.recorder.rank.polls import PollWatch
from hanglab.recorder.rank.processor_usage import UsageSampler
from hanglab.recorder.rank.program_end import ProgramEndWatch
from hanglab.recorder.rank.progress_file import ProgressFile
from hanglab.recorder.rank.sections import Section, section_type
from hanglab.recorder.rank.service import Service, current_stacks
from hanglab.recorder.rank.store_keys import StoreKeys
from hanglab.recorder.rank.thread_ids import note_threads
from hanglab.recorder.rank.thread_waits import thread_waits
from hanglab.recorder.system.host_name import host_name


class RankRecorder:
    """Everything that runs inside one rank.  Raises OSError where its folder cannot be had.

    ``runtime`` is a folder with a short path, for the socket.
    """

    def __init__(
        self,
        case: Path,
        runtime: Path | None,
        rank: int,
        world_size: int | None,
        local_rank: int | None,
        attempt: int,
    ) -> None:
        self.problems: list[str] = []
        self._pid = os.getpid()
        self.folder, self.attempt = process.claim_folder(case, host_name(), rank, attempt)
        self._progress = self._new_progress()
        self._progress.identify(rank, self.attempt, world_size)
        self._section = section_type(self._progress)
        #: What the job opens a section with, and begins a step: what does it itself, as a
        #: method of this class would cost as much again.
        self.section: Callable[[str], Section] = self._section
        self.step = self._progress.step
        user_code = ownership.UserCode(
            ownership.stdlib_folders(), ownership.site_folders(), ownership.own_folders()
        )
        self._groups = GroupMembers(rank)
        #: torch's class of groups, once it has been imported.
        self._process_group: type = object
        self._boundary = Boundary(
            self._progress, CallSites(user_code, self._progress.text), self._group_seen
        )
        self._backends = Backends(self._boundary, rank, world_size, self._groups)
        self._program = ownership.ProgramCode(user_code, ownership.site_folders())
        self._group_calls = GroupCalls(self._boundary, self._write_standing, self._group_seen)
        self._graphs = GraphReplays(self._boundary)
        self._lines = LineSampler(user_code, self._section.innermost)
        self._stores = StoreKeys(lambda: self._progress.slots[Slot.OPERATIONS_TOTAL])
        self._polls = PollWatch(self._moved, user_code, self._stores.prefix_of)
        self._standing = FunctionChanges(self._progress, user_code)
        self._queues = LoaderQueues(self._progress)
        self._loader = LoaderWatch(
            self._section, BatchSizes(self._progress).note, self._write_children, self._queues
        )
        self._fetches = FetchWatch(self._progress)
        self._pauses = PauseWatch(self._progress)
        self._updates = UpdateWatch(self._section)
        self._usage = UsageSampler(self._progress)
        self._children = ChildWatch(self._loader.serving, self._loader.workers, self._write_child)
        self._shapes: dict[tuple[str, str, int], dict[str, Any]] = {}
        self._exceptions = ExceptionWatch(self._write_exception, self._write_raised)
        #: Kept open so that there is one to write with when the job has used all others up.
        self._spare = _spare_descriptor()
        self._handled = HandledWatch(self._write_handled)
        self._program_ends = ProgramEndWatch(user_code, self._write_program_end)
        self._imports = AfterImport()
        # A signal handler of the job may ask for a dump in the middle of one.
        self._writing = threading.RLock()
        self._service = Service(
            (runtime or self.folder) / f"rank-{rank}.{self.attempt}.sock",
            self._look,
            self._beat,
            self._answer,
        )
        self._description = process.description(rank, world_size, local_rank, self.attempt)
        self._description["python"]["native"] = self._progress.native is not None
        self._write(files.PROCESS, self._description)

    def _new_progress(self) -> ProgressFile:
        try:
            return ProgressFile(self.folder / files.PROGRESS.name)
        except OSError as error:
            self.problems.append(f"{files.PROGRESS.name}: {error.strerror}")
            return ProgressFile(None)

    def start(self) -> None:
        """Put the hooks in place and start the thread."""
        self._exceptions.install()
        self._program_ends.install()
        self._imports.add("traceback", self._handled.install)
        self._imports.add("torch.distributed.distributed_c10d", self._distributed_imported)
        self._imports.add("torch.utils.data.dataloader", self._loader.install)
        self._imports.add("torch.utils.data._utils.fetch", self._fetches.install)
        self._imports.add("torch.optim.optimizer", self._updates.install)
        if branches.wanted(os.environ):
            self._record_branches()
        self._pauses.install()
        os.register_at_fork(after_in_child=self._leave_in_child)
        # When the main thread is through with the script, before threads are
        # joined: a rank that hangs there is known to be past its work.
        register = getattr(threading, "_register_atexit", None)
        with contextlib.suppress(RuntimeError, TypeError):
            if register is not None:
                register(self._exiting)
        atexit.register(self._exiting)
        self._service.start()

    def _record_branches(self) -> None:
        try:
            branches.RECORDING.begin(self.folder / files.BRANCHES.name)
        except OSError as error:
            self.problems.append(f"{files.BRANCHES.name}: {error.strerror}")
            return
        self._imports.add("torch._dynamo", leave_compiled_code_alone)

    def _distributed_imported(self, module: ModuleType) -> None:
        from torch._C._distributed_c10d import (
            Backend,
            PrefixStore,
            ProcessGroup,
            Store,
            TCPStore,
            Work,
        )

        self._process_group = ProcessGroup
        self._boundary.install(ProcessGroup, Work)
        self._backends.install(Backend)
        self._stores.install(Store, PrefixStore, TCPStore)
        self._polls.watch_stores(Store)
        self._group_calls.install(module, ProcessGroup)

    def _group_seen(self, group: object) -> None:
        with GUARD:
            import torch

            # Not before there is a group: an emulated device brings a class of its own.
            self._graphs.install(torch.cuda.CUDAGraph)
        # At once: the rank may be killed before the next beat.
        if isinstance(group, self._process_group):
            if type(group) is not self._process_group:
                self._boundary.add_python_group(group)
            self._groups.note(group)
        else:
            self._backends.look_at(group)
        if self._groups.changed:
            self._write_groups()

    # What the job itself calls.

    def dump(self) -> None:
        """Write the buffers and the groups now; never raises."""
        for part in self._answer("dump"):
            part()

    # What the thread does.

    def _look(self) -> None:
        self._standing.look()
        self._lines.look()

    def _beat(self) -> None:
        self._progress.read_clocks()
        self._section.write_totals()
        self._progress.read_processor_time()
        self._usage.look()
        if rows := dump.counters():
            self._progress.counters(rows)
        self._boundary.read_reductions()
        self._boundary.forget_the_gone()
        if self._description["python"]["torch"] is None:
            self._note_torch()
        self._groups.look()
        if self._groups.changed:
            self._write_groups()
        self._queues.look()
        self._write_children()
        self._polls.look()
        self._progress.slots[Slot.POLLING_SINCE] = self._polls.polling_since_ns()
        note_threads(self._progress.slots)

    def _moved(self) -> tuple[int, ...]:
        """Numbers that change with each step, section and operation."""
        slots = self._progress.slots
        return (
            slots[Slot.OPERATIONS_TOTAL],
            slots[Slot.OPERATION_EVENT],
            slots[Slot.STEPS_TOTAL],
            slots[Slot.SECTION_EVENT],
        )

    def _note_torch(self) -> None:
        """Complete process.json once the job has imported torch."""
        facts = process.torch_facts()
        if facts["torch"] is not None:
            self._description["python"].update(facts)
            self._write(files.PROCESS, self._description)

    def _answer(self, command: str) -> list[Callable[[], dict[str, Any]]]:
        if command == "dump":
            return [self._dump_buffer, self._dump_rest]
        if command == "buffer":
            return [lambda: {"buffer": dump.buffer_as_text()}]
        if command == "stacks":
            return [lambda: {"threads": current_stacks()}]
        return [lambda: {"problems": [f"unknown command {command!r}"]}]

    def _dump_buffer(self) -> dict[str, Any]:
        self._progress.read_clocks()  # Who no longer waits for the answer sees that this runs.
        problems = self._dump_to(files.FLIGHT_RECORDER.name, stacks=False)
        return {"done": "buffer", "problems": problems}

    def _dump_rest(self) -> dict[str, Any]:
        with GUARD:
            self._beat()
            self._boundary.read_completions()
        self._write_groups()
        self._write_standing()
        problems = self._dump_to(files.FLIGHT_RECORDER_STACKS.name, stacks=True)
        slots = self._progress.slots
        slots[Slot.DUMPS] += 1
        return {"done": "all", "problems": [*self.problems, *problems]}

    def _write_standing(self) -> None:
        """Writes the position of the user's code: its loops, its waits, its frequent lines."""
        with GUARD:
            self._note_shapes(standing_code(self._program))
        with GUARD:
            self._write(files.WAITS, thread_waits(tuple(ownership.stdlib_folders())))
        with GUARD:
            self._write(files.PENDING, pending_exceptions())
        with GUARD:
            self._write(files.STORE_KEYS, self._stores.rows())
        with GUARD:
            self._write(files.POLLS, self._polls.rows())
        self._write_lines()

    def _note_shapes(self, shapes: list[dict[str, Any]]) -> None:
        """Keep the latest of each function: those of frames that are gone, too."""
        for shape in shapes:
            self._shapes[shape["file"], shape["function"], shape["first_line"]] = shape
        if shapes:
            self._write(files.CODE, list(self._shapes.values()))

    def _write_raised(self, traceback: TracebackType | None) -> None:
        if os.getpid() == self._pid:
            self._note_shapes(raised_code(traceback, self._program))

    def _write_lines(self) -> None:
        self._write(files.LINES, self._lines.rows())

    def _dump_to(self, name: str, stacks: bool) -> list[str]:
        try:
            data = dump.buffer(stacks)
        except Exception as error:
            if is_the_jobs(error):
                raise
            return [f"{name}: {error}"]
        if data is None:
            return [f"{name}: torch.distributed has not been imported"]
        try:
            with self._writing:
                folders.write_whole(self.folder / name, data)
        except OSError as error:
            if is_the_jobs(error):
                raise
            return [f"{name}: {error.strerror}"]
        return []

    # What is written as it happens.

    def _write(self, file: EvidenceFile[Any], record: object) -> None:
        """Write a document, or add a line."""
        path, data = self.folder / file.name, json.dumps(record).encode()
        try:
            if isinstance(file, JsonLines):
                folders.append_line(path, data)
            else:
                with self._writing:
                    folders.write_whole(path, data)
        except OSError as error:
            if is_the_jobs(error):
                raise
            self._problem(f"{file.name}: {error.strerror}")

    def _problem(self, text: str) -> None:
        if text not in self.problems and len(self.problems) < 32:
            self.problems.append(text)

    def _write_groups(self) -> None:
        self._groups.changed = False
        self._write(files.GROUPS, self._groups.rows())

    def _write_children(self, workers: Iterable[Any] = ()) -> None:
        self._children.look(workers)

    def _write_child(self, child: dict[str, Any]) -> None:
        self._write(files.CHILDREN, child)

    def _write_exception(self, raised: dict[str, Any]) -> None:
        if os.getpid() != self._pid:
            return
        self._release_spare()
        self._write(files.EXCEPTIONS, raised)
        self._children.look_at_all()
        self._keep_elastic_error()
        self.dump()

    def _write_program_end(self, end_call: dict[str, Any]) -> None:
        if end_call["how"] == "os._exit" and (rows := dump.counters()):
            # Nothing of Python runs after that: no dump will be written.
            self._progress.counters(rows)
        self._write(files.PROGRAM_ENDS, end_call)

    def _release_spare(self) -> None:
        if self._spare >= 0:
            spare, self._spare = self._spare, -1
            os.close(spare)

    def _write_handled(self, value: BaseException) -> None:
        thread = threading.current_thread()
        main = thread is threading.main_thread()
        if ends_the_process(value):
            self._exceptions.note(value, value.__traceback__, thread.name, main)
        elif os.getpid() == self._pid:
            self._write(files.HANDLED, describe(value, value.__traceback__, thread.name, main))

    def _keep_elastic_error(self) -> None:
        """Copy what torch's elastic ``record`` wrote of an exception, if it did."""
        path = os.environ.get("TORCHELASTIC_ERROR_FILE")
        if path:
            with contextlib.suppress(OSError), open(path, "rb") as file:
                folders.write_whole(self.folder / files.ELASTIC_ERROR.name, file.read(1 << 20))

    # The end.

    def _exiting(self) -> None:
        if os.getpid() != self._pid:
            return
        self._progress.slots[Slot.PHASE] = layout.EXITING
        with undisturbed(), contextlib.suppress(Exception):
            self._program_ends.end()
            self._exceptions.look_back()
            self._write_children()
            self._keep_elastic_error()
            self.dump()

    def _leave_in_child(self) -> None:
        """A forked child is no rank: it must neither write to the parent's files nor record."""
        with contextlib.suppress(Exception):
            self._progress.leave()
            self._section.leave()
            self._boundary.uninstall()
            self._group_calls.uninstall()
            self._graphs.uninstall()
            self._polls.uninstall()
            self._stores.uninstall()
            self._loader.uninstall()
            self._pauses.uninstall()
            self._updates.uninstall()
            self._usage.leave_in_child()
            self._exceptions.uninstall()
            self._program_ends.uninstall()
            self._handled.uninstall()
            self._imports.stop()
            self._service.leave_in_child()


def _spare_descriptor() -> int:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
