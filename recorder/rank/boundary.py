"""Recording at the Python boundary: what passes from Python into a process group.

Flight Recorder knows neither roots nor reduce operations nor split lists, and
on gloo no point-to-point.  torch.distributed's functions end in the methods of
``torch._C._distributed_c10d.ProcessGroup``, which see them all.
DistributedDataParallel's reducer and the functional collectives call the group
from C++ and do not pass here.
"""

from __future__ import annotations

import itertools
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable
from struct import Struct
from threading import get_ident
from typing import Any

from hanglab.recorder.case import layout
from hanglab.recorder.case.layout import COMPLETED, FAILED, NONE, Slot
from hanglab.recorder.rank.arguments import METHODS, Method, root_of, splits_of
from hanglab.recorder.rank.call_site import CallSites
from hanglab.recorder.rank.guards import is_the_jobs
from hanglab.recorder.rank.progress_file import ProgressFile

_RING = layout.OPERATIONS.capacity
_RECORD_BYTES = layout.OPERATIONS.record
_FIELD = {name: place for place, name in enumerate(layout.OPERATION_FIELDS)}
_RETURNED = _FIELD["returned"]
_WAIT_ENTERED = _FIELD["wait_entered"]
_WAIT_RETURNED = _FIELD["wait_returned"]
_REDUCE_OP = _FIELD["reduce_op"]
_FLAGS = _FIELD["flags"]


#: A Work that nobody has waited for yet, weakly; slot and number of its record; and
#: whether Work.wait returns only after the operation has finished.
Outstanding = tuple["weakref.ref[Any]", int, int, bool]


class Boundary:
    """Wraps the methods of ProcessGroup and Work.wait, and undoes it.

    ``group_seen(group)`` is called once per process group, at its first operation.
    """

    def __init__(
        self,
        progress: ProgressFile,
        sites: CallSites,
        group_seen: Callable[[Any], None],
    ) -> None:
        self._progress = progress
        self._slots = progress.slots
        self._mapping = progress.mapping
        self._sites = sites
        self._group_seen = group_seen
        self._record = Struct(f"<{len(layout.OPERATION_FIELDS)}q")
        self._first = progress.at[layout.OPERATIONS]
        self._numbers = itertools.count(1)
        #: By the Work's id, which may belong to another object once the Work has gone.
        self._outstanding: dict[int, Outstanding] = {}
        #: id(group) -> (the group, weakly; its name's text number)
        self._groups: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._shapes: dict[Any, tuple[int, int]] = {}
        self._dtypes: dict[Any, int] = {}
        # Reading a reduce operation takes longer than recording all the rest, so
        # it is read later, by the recorder's thread, from the options.
        self._reductions: deque[tuple[int, int, Any]] = deque(maxlen=64)
        #: (class, attribute, original entry of the class's __dict__)
        self._wrapped: list[tuple[type, str, Any]] = []

    def install(self, process_group: type, work: type) -> None:
        """Wrap every method that this torch has.  Wrapping twice does nothing."""
        if self._wrapped:
            return
        self.add(process_group)
        self._wrap(work, "wait", self._wait_wrapper(work.wait))  # type: ignore[attr-defined]

    def add(self, owner: type) -> None:
        """Wrap the methods of one more class whose calls are operations."""
        if any(wrapped[0] is owner for wrapped in self._wrapped):
            return
        for name, method in METHODS.items():
            if name in owner.__dict__:
                self._wrap(owner, name, self._method_wrapper(name, method, owner))

    def _wrap(self, owner: type, name: str, wrapper: Callable[..., Any]) -> None:
        # getattr would give an object without the binding, and restoring it would
        # leave a method that gets no self.
        self._wrapped.append((owner, name, owner.__dict__[name]))
        setattr(owner, name, wrapper)

    def uninstall(self) -> None:
        """Put the original methods back."""
        while self._wrapped:
            owner, name, original = self._wrapped.pop()
            setattr(owner, name, original)

    def enter(self, method: str, splits: str, frame: Any) -> tuple[int, int]:
        """Record a call that is no method of a group; returns its slot and number."""
        file, function, line = self._sites.find(frame)
        number = next(self._numbers)
        place = self._first + (number - 1) % _RING * _RECORD_BYTES
        text = self._progress.text
        now = time.time_ns()
        self._record.pack_into(
            self._mapping, place, number, now, 0, 0, 0, NONE, NONE, NONE, get_ident(),
            NONE, NONE, text(method), 0, 0, 0, 0, text(splits), file, function, line, 0, number,
        )  # fmt: skip
        self._slots[Slot.OPERATIONS_TOTAL] = number
        self._slots[Slot.OPERATION_EVENT] = now
        return place >> 3, number

    def leave(self, slot: int, number: int, failed: bool) -> None:
        """The call that ``enter`` recorded has come back."""
        if self._slots[slot] == number:
            now = time.time_ns()
            self._slots[slot + _RETURNED] = now
            self._slots[slot + _FLAGS] |= FAILED if failed else COMPLETED
            self._slots[Slot.OPERATION_EVENT] = now

    def read_reductions(self) -> None:
        """Add the reduce operations of the latest operations to their records."""
        while self._reductions:
            slot, number, options = self._reductions.popleft()
            text = self._progress.text(_reduce_op(options))
            if self._slots[slot] == number:
                self._slots[slot + _REDUCE_OP] = text

    def read_completions(self) -> None:
        """Mark the operations that have finished although nobody has waited for them yet.

        Asks only those on the CPU: a device's events must not be queried while a
        graph is captured, and Flight Recorder knows of them anyway.
        """
        for reference, slot, number, blocks in list(self._outstanding.values()):
            work = reference()
            if work is not None and blocks and self._slots[slot] == number:
                try:
                    if work.is_completed():
                        self._slots[slot + _FLAGS] |= COMPLETED
                except Exception:  # a backend's own complaint about its own operation
                    self._slots[slot + _FLAGS] |= FAILED

    def forget_the_gone(self) -> None:
        """Drop what is kept of operations whose Work nobody holds any more."""
        for key, entry in list(self._outstanding.items()):
            if entry[0]() is None and self._outstanding.get(key) is entry:
                self._outstanding.pop(key, None)

    def _method_wrapper(self, name: str, method: Method, owner: type) -> Callable[..., Any]:
        # This runs at every operation of the job: everything is a local name, what
        # is rare stands in functions of its own, what is common in none.
        original = getattr(owner, name)
        clock = time.time_ns
        frame_at = sys._getframe
        thread = get_ident
        reference = weakref.ref
        text = self._progress.text
        slots = self._slots
        mapping = self._mapping
        pack_into = self._record.pack_into
        first = self._first
        numbers = self._numbers
        find = self._sites.find
        groups = self._groups
        look_at_group = self._look_at_group
        shapes = self._shapes
        look_at_shape = self._look_at_shape
        dtypes = self._dtypes
        look_at_dtype = self._look_at_dtype
        reductions = self._reductions
        outstanding = self._outstanding
        total, event = Slot.OPERATIONS_TOTAL, Slot.OPERATION_EVENT
        returned, flags = _RETURNED, _FLAGS
        tensor_at, options_at, rooted, reduces, peer_at, tag_at, splits_at, waits, _ = method
        constant_peer = -1 if method.any_source else NONE
        method_text = text(name)

        def wrapper(group: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                known = groups.get(id(group))
                if known is None or known[0]() is not group:
                    known = look_at_group(group)
                try:
                    sequence = group._get_sequence_number_for_group()
                except Exception as error:  # a backend without sequence numbers
                    if is_the_jobs(error):
                        raise
                    sequence = NONE
                shape = dtype = splits = 0
                numel = root = tag = NONE
                peer = constant_peer
                blocks = True
                # Odd arguments are recorded as unknown; the call itself will judge them.
                try:
                    if tensor_at >= 0:
                        tensor = args[tensor_at]
                        if type(tensor) is list:
                            tensor = tensor[0]
                        size = tensor.shape
                        shape, numel = shapes.get(size) or look_at_shape(size)
                        kind = tensor.dtype
                        dtype = dtypes.get(kind) or look_at_dtype(kind)
                        blocks = tensor.is_cpu
                    if peer_at >= 0:
                        peer = args[peer_at]
                    if tag_at >= 0:
                        tag = args[tag_at]
                    if rooted:
                        root = root_of(method, args, kwargs)
                    if splits_at >= 0:
                        splits = text(splits_of(method, args))
                except Exception as error:
                    if is_the_jobs(error):
                        raise
                file, function, line = find(frame_at(1))
                number = next(numbers)
                place = first + (number - 1) % _RING * _RECORD_BYTES
                now = clock()
                pack_into(
                    mapping, place, number, now, 0, 0, 0, sequence, numel, tag, thread(),
                    root, peer, method_text, known[1], 0, shape, dtype, splits,
                    file, function, line, 0, number,
                )  # fmt: skip
                slot = place >> 3
                slots[total] = number
                slots[event] = now
                if reduces and len(args) > options_at:
                    reductions.append((slot, number, args[options_at]))
            except Exception as error:
                if is_the_jobs(error):
                    raise
                return original(group, *args, **kwargs)
            try:
                work = original(group, *args, **kwargs)
            except BaseException:
                if slots[slot] == number:
                    slots[slot + returned] = slots[event] = clock()
                    slots[slot + flags] |= FAILED
                raise
            # The ring may have come round while the call lasted.
            if slots[slot] == number:
                slots[slot + returned] = slots[event] = clock()
                if work is None:
                    if waits or blocks:
                        slots[slot + flags] = COMPLETED
                else:
                    try:
                        outstanding[id(work)] = (reference(work), slot, number, blocks)
                    except TypeError:  # a backend's own kind of Work
                        return work
            return work

        wrapper.__name__ = wrapper.__qualname__ = name
        wrapper.__doc__ = original.__doc__
        return wrapper

    def _wait_wrapper(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock = time.time_ns
        slots = self._slots
        take = self._outstanding.pop
        event = Slot.OPERATION_EVENT
        wait_entered, wait_returned, flags = _WAIT_ENTERED, _WAIT_RETURNED, _FLAGS

        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            known = take(id(work), None)
            if known is None:
                return original(work, *args, **kwargs)
            reference, slot, number, blocks = known
            if reference() is not work or slots[slot] != number:
                return original(work, *args, **kwargs)
            slots[slot + wait_entered] = slots[event] = clock()
            try:
                result = original(work, *args, **kwargs)
            except BaseException:
                if slots[slot] == number:
                    slots[slot + wait_returned] = slots[event] = clock()
                    slots[slot + flags] |= FAILED
                raise
            if slots[slot] == number:
                slots[slot + wait_returned] = slots[event] = clock()
                if blocks:
                    slots[slot + flags] = COMPLETED
            return result

        wait.__doc__ = original.__doc__
        return wait

    def _look_at_group(self, group: Any) -> tuple[weakref.ref[Any], int]:
        known = (weakref.ref(group), self._progress.text(name_of(group)))
        if len(self._groups) > 4096:
            self._groups.clear()
        self._groups[id(group)] = known
        self._group_seen(group)
        return known

    def _look_at_shape(self, size: Any) -> tuple[int, int]:
        numel = 1
        for length in size:
            numel *= int(length)
        entry = (self._progress.text(str([int(length) for length in size])), numel)
        if len(self._shapes) < 4096:
            self._shapes[size] = entry
        return entry

    def _look_at_dtype(self, dtype: Any) -> int:
        number = self._dtypes[dtype] = self._progress.text(_DTYPES.get(str(dtype), str(dtype)))
        return number


def name_of(group: Any) -> str:
    """A group's name; a backend has that of the group that it was made for, if any."""
    name = getattr(group, "group_name", None)
    if name is None:
        try:
            name = getattr(getattr(group, "options", None), "group_name", "")
        except RuntimeError as error:  # torch's base of all backends has none to give
            if is_the_jobs(error):
                raise
    return str(name or "")


#: Flight Recorder's names of dtypes, which are those of C++.
_DTYPES = {
    "torch.float32": "Float",
    "torch.float64": "Double",
    "torch.float16": "Half",
    "torch.bfloat16": "BFloat16",
    "torch.uint8": "Byte",
    "torch.int8": "Char",
    "torch.int16": "Short",
    "torch.int32": "Int",
    "torch.int64": "Long",
    "torch.bool": "Bool",
    "torch.complex64": "ComplexFloat",
    "torch.complex128": "ComplexDouble",
    "torch.float8_e4m3fn": "Float8_e4m3fn",
    "torch.float8_e5m2": "Float8_e5m2",
}


def _reduce_op(options: Any) -> str:
    """``sum``, ``max`` ... from options or from a bare reduce operation; "" if unknown."""
    try:
        reduction = getattr(options, "reduceOp", options)
        kind = getattr(reduction, "op", reduction)
        return str(kind).rpartition(".")[2].rstrip(">").partition(":")[0].lower()
    except Exception:
        return ""
