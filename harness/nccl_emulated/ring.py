"""The Flight Recorder ring of this process's emulated groups, with NCCL's fields and states.

Field by field after torch 2.13, ``FlightRecorder.hpp`` and ``FlightRecorderDetail.hpp``: states
are those of the moment of the dump, times are those of the look that discovered them, and an entry
is retired when the watchdog has done with its work.  Members of a coalesced batch stay scheduled.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from torch._C._profiler import gather_traceback, symbolize_tracebacks

from hanglab.harness.nccl_emulated.operation import DeviceOperation
from hanglab.harness.nccl_emulated.settings import (
    LIBRARY_KEYS,
    WITH_SPLIT_LISTS,
    dump_format,
    is_nccl2,
)
from hanglab.recorder.case.backends import EMULATED_LIBRARY
from hanglab.recorder.case.operations import SPLIT_KEYS

#: Folders whose frames no real dump has.
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_MODES = os.path.join("torch", "utils", "_python_dispatch.py")
_DTYPES = {
    torch.float32: "Float", torch.float64: "Double", torch.float16: "Half",
    torch.bfloat16: "BFloat16", torch.int8: "Char", torch.uint8: "Byte", torch.int16: "Short",
    torch.int32: "Int", torch.int64: "Long", torch.bool: "Bool", torch.complex64: "ComplexFloat",
    torch.complex128: "ComplexDouble",
}  # fmt: skip


class GroupState:
    """State of one group as the ring knows it; numbers are those that torch calls sequence ids."""

    def __init__(self, pg_id: int) -> None:
        self.pg_id = pg_id
        self.name = ""
        self.description = "undefined"
        self.ranks: Sequence[int] = ()
        self.enqueued = -1
        self.started = -1
        self.completed = -1


class RingEntry:
    """One operation; ``operation`` is None for a member of a batch."""

    __slots__ = (
        "completed_ns", "created_ns", "duration_ms", "group", "hooked", "inputs", "is_p2p", "name",
        "numbers", "operation", "outputs", "record", "retired", "splits", "started_ns", "thread",
        "timeout_ms", "trace",
    )  # fmt: skip

    def __init__(
        self,
        group: GroupState,
        name: str,
        numbers: tuple[int, int, int],
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        timeout_ms: int,
        is_p2p: bool,
        operation: DeviceOperation | None,
    ) -> None:
        self.record = -1
        self.group = group
        self.name = name
        #: Sequence ids of collectives and of messages, and number of the operation.
        self.numbers = numbers
        self.inputs = [(t.shape, t.dtype) for t in inputs]
        self.outputs = self.inputs if outputs is inputs else [(t.shape, t.dtype) for t in outputs]
        self.timeout_ms = timeout_ms
        self.is_p2p = is_p2p
        self.operation = operation
        self.created_ns = time.time_ns()
        self.started_ns: int | None = None
        self.completed_ns: int | None = None
        #: Told of its completion alone (``FlightRecorderHook``).
        self.hooked = False
        self.duration_ms: float | None = None
        self.retired = False
        #: Elements that an all_to_all sends to each member, and those that it takes from each.
        self.splits: list[list[int]] | None = None
        self.thread = _thread()
        self.trace = gather_traceback(True, False, False)  # Python alone

    def look(self, timing: bool) -> None:
        """Discover what the operation has come to."""
        operation = self.operation
        # Of a kernel that has failed torch's events can tell nothing: it stays as it was seen.
        if operation is None or operation.error is not None:
            return
        if self.hooked:
            if self.completed_ns is None and operation.completed_ns:
                self.started_ns = self.completed_ns = time.time_ns()
            return
        if timing and self.started_ns is None and operation.started_ns:
            self.started_ns = time.time_ns()
        if self.completed_ns is None and operation.completed_ns:
            self.completed_ns = time.time_ns()

    @property
    def state(self) -> str:
        if self.completed_ns is not None:
            return "completed"
        return "scheduled" if self.started_ns is None else "started"


class EntryRing:
    """The latest entries.  ``timing`` is TORCH_NCCL_ENABLE_TIMING: without it none is started."""

    def __init__(self, capacity: int, timing: bool) -> None:
        self.entries: deque[RingEntry] = deque(maxlen=max(capacity, 1))
        self.capacity = capacity
        self.timing = timing
        self.hooked = is_nccl2()
        self.groups: list[GroupState] = []
        self._records = 0
        self._lock = threading.Lock()

    def new_group(self) -> GroupState:
        with self._lock:
            group = GroupState(len(self.groups))
            self.groups.append(group)
        return group

    def add(self, entry: RingEntry) -> None:
        if self.capacity <= 0:
            return
        entry.hooked = self.hooked
        with self._lock:
            entry.record = self._records
            self._records += 1
            self.entries.append(entry)

    def status(self) -> dict[str, dict[str, int]]:
        """Status of each group that has launched anything."""
        return {
            str(group.pg_id): {
                "last_enqueued_collective": group.enqueued,
                "last_started_collective": group.started,
                "last_completed_collective": group.completed,
            }
            for group in self.groups
            if group.enqueued >= 0
        }

    def content(self, collectives: bool, stacks: bool, only_active: bool) -> dict[str, Any]:
        """Content of torch's dump, as plain data."""
        version = dump_format()
        top: dict[str, Any] = {
            "version": version,
            "pg_config": {
                group.name: {
                    "name": group.name,
                    "desc": group.description,
                    "ranks": str(list(group.ranks)),
                }
                for group in sorted(self.groups, key=lambda group: (group.name, group.description))
            },
            LIBRARY_KEYS[version]: EMULATED_LIBRARY,
            "pg_status": self.status(),
        }
        if collectives:
            with self._lock:
                entries = list(self.entries)
            for entry in entries:
                entry.look(self.timing)
            if only_active:
                entries = [entry for entry in entries if entry.completed_ns is None]
            frames = _frames([entry.trace for entry in entries]) if stacks else None
            top["entries"] = [
                _row(entry, frames[number] if frames is not None else None)
                for number, entry in enumerate(entries)
            ]
            if version in WITH_SPLIT_LISTS:
                for entry, row in zip(entries, top["entries"], strict=True):
                    if entry.splits is not None:
                        row |= dict(zip(SPLIT_KEYS, entry.splits, strict=True))
        return top


def _row(entry: RingEntry, frames: list[dict[str, Any]] | None) -> dict[str, Any]:
    row: dict[str, Any] = {} if frames is None else {"frames": frames}
    seq, p2p_seq, op_id = entry.numbers
    row |= {
        "record_id": entry.record,
        "pg_id": entry.group.pg_id,
        "process_group": (entry.group.name, entry.group.description),
        "thread_name": entry.thread[0],
        "thread_id": entry.thread[1],
        "collective_seq_id": seq,
        "p2p_seq_id": p2p_seq,
        "op_id": op_id,
        "profiling_name": entry.name,
        "time_created_ns": entry.created_ns,
    }
    if entry.duration_ms is not None:
        row["duration_ms"] = entry.duration_ms
    return row | {
        "input_sizes": [list(shape) for shape, _ in entry.inputs],
        "input_dtypes": [_DTYPES.get(dtype, str(dtype)) for _, dtype in entry.inputs],
        "output_sizes": [list(shape) for shape, _ in entry.outputs],
        "output_dtypes": [_DTYPES.get(dtype, str(dtype)) for _, dtype in entry.outputs],
        "state": entry.state,
        "time_discovered_started_ns": entry.started_ns,
        "time_discovered_completed_ns": entry.completed_ns,
        "retired": entry.retired,
        "timeout_ms": entry.timeout_ms,
        "is_p2p": entry.is_p2p,
    }


def _frames(traces: list[Any]) -> list[list[dict[str, Any]]]:
    """Frames of each entry, the innermost first; equal ones are one object, as torch's are."""
    known: dict[tuple[Any, ...], dict[str, Any]] = {}
    stacks = []
    for symbols in symbolize_tracebacks(traces):
        stack = []
        for frame in symbols:
            file = frame["filename"]
            if file.startswith(_OWN) or file.endswith(_MODES):
                continue
            key = (frame["name"], file, frame["line"])
            stack.append(known.setdefault(key, {"name": key[0], "filename": file, "line": key[2]}))
        stacks.append(stack)
    return stacks


_THREADS = threading.local()


def _thread() -> tuple[str, str]:
    """Name of the calling thread as the kernel has it, and its handle, as ``get_id`` of C++."""
    found: tuple[str, str] | None = getattr(_THREADS, "names", None)
    if found is None:
        number = threading.get_native_id()
        try:
            with open(f"/proc/self/task/{number}/comm") as file:
                name = file.read().strip()
        except OSError:
            name = ""
        found = _THREADS.names = (name, str(threading.get_ident()))
    return found


_RING: EntryRing | None = None


def process_ring() -> EntryRing:
    """This process's; TORCH_FR_BUFFER_SIZE says how long it is, as for torch's own."""
    global _RING
    if _RING is None:
        names = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
        given = [os.environ[name] for name in names if name in os.environ]
        capacity = int(given[0]) if given and given[0].isdecimal() else 2000
        _RING = EntryRing(capacity, os.environ.get("TORCH_NCCL_ENABLE_TIMING", "0") == "1")
    return _RING


def ring_if_any() -> EntryRing | None:
    return _RING


def _forget_in_child() -> None:
    global _RING
    _RING = None


os.register_at_fork(after_in_child=_forget_in_child)
