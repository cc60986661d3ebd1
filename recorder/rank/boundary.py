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
from hanglab.recorder.rank.progress_file import ProgressFile

_RING = layout.OPERATIONS.capacity
_RECORD_BYTES = layout.OPERATIONS.record
_FIELD = {name: place for place, name in enumerate(layout.OPERATION_FIELDS)}
_RETURNED = _FIELD["returned"]
_WAIT_ENTERED = _FIELD["wait_entered"]
_WAIT_RETURNED = _FIELD["wait_returned"]
_REDUCE_OP = _FIELD["reduce_op"]
_FLAGS = _FIELD["flags"]


class _Outstanding(weakref.ref):  # type: ignore[type-arg]
    """A Work that nobody has waited for yet; it never keeps the Work alive."""

    __slots__ = ("blocks", "key", "number", "slot")

    slot: int
    number: int
    key: int
    #: True where Work.wait returns only after the operation has finished.
    blocks: bool


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
        self._events = itertools.count(1)
        self._outstanding: dict[int, _Outstanding] = {}
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
        for name, method in METHODS.items():
            if name in process_group.__dict__:
                self._wrap(process_group, name, self._method_wrapper(name, method, process_group))
        self._wrap(work, "wait", self._wait_wrapper(work.wait))  # type: ignore[attr-defined]

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
        self._record.pack_into(
            self._mapping, place, number, time.time_ns(), 0, 0, 0, NONE, NONE, NONE, get_ident(),
            NONE, NONE, text(method), 0, 0, 0, 0, text(splits), file, function, line, 0, number,
        )  # fmt: skip
        self._slots[Slot.OPERATIONS_TOTAL] = number
        self._slots[Slot.OPERATION_EVENTS] = next(self._events)
        return place >> 3, number

    def leave(self, slot: int, number: int, failed: bool) -> None:
        """The call that ``enter`` recorded has come back."""
        if self._slots[slot] == number:
            self._slots[slot + _RETURNED] = time.time_ns()
            self._slots[slot + _FLAGS] |= FAILED if failed else COMPLETED
            self._slots[Slot.OPERATION_EVENTS] = next(self._events)

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
        for outstanding in list(self._outstanding.values()):
            work = outstanding()
            slot = outstanding.slot
            if work is not None and outstanding.blocks and self._slots[slot] == outstanding.number:
                try:
                    if work.is_completed():
                        self._slots[slot + _FLAGS] |= COMPLETED
                except Exception:  # a backend's own complaint about its own operation
                    self._slots[slot + _FLAGS] |= FAILED

    def _method_wrapper(self, name: str, method: Method, owner: type) -> Callable[..., Any]:
        original = getattr(owner, name)
        clock = time.time_ns
        slots = self._slots
        begin = self._begin_of(name, method)
        outstanding = self._outstanding
        events = self._events
        waits = method.waits

        def gone(reference: _Outstanding) -> None:
            outstanding.pop(reference.key, None)

        def wrapper(group: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                slot, number, blocks = begin(group, args, kwargs, sys._getframe(1))
            except Exception:
                return original(group, *args, **kwargs)
            try:
                work = original(group, *args, **kwargs)
            except BaseException:
                if slots[slot] == number:
                    slots[slot + _RETURNED] = clock()
                    slots[slot + _FLAGS] |= FAILED
                    slots[Slot.OPERATION_EVENTS] = next(events)
                raise
            if slots[slot] == number:
                slots[slot + _RETURNED] = clock()
                slots[Slot.OPERATION_EVENTS] = next(events)
                if work is None:
                    if waits or blocks:
                        slots[slot + _FLAGS] |= COMPLETED
                else:
                    try:
                        reference = _Outstanding(work, gone)
                    except TypeError:  # a backend's own kind of Work
                        return work
                    reference.key = key = id(work)
                    reference.slot = slot
                    reference.number = number
                    reference.blocks = blocks
                    outstanding[key] = reference
            return work

        wrapper.__name__ = wrapper.__qualname__ = name
        wrapper.__doc__ = original.__doc__
        return wrapper

    def _begin_of(self, name: str, method: Method) -> Callable[..., tuple[int, int, bool]]:
        """The part before the call: fills the operation's record."""
        clock = time.time_ns
        text = self._progress.text
        slots = self._slots
        mapping = self._mapping
        pack_into = self._record.pack_into
        first = self._first
        numbers = self._numbers
        events = self._events
        find = self._sites.find
        groups = self._groups
        shapes = self._shapes
        dtypes = self._dtypes
        reductions = self._reductions
        tensor_of, options_at, rooted, reduces, peer_at, tag_at, splits_at, *_ = method
        has_peer = peer_at >= 0
        has_tag = tag_at >= 0
        constant_peer = -1 if method.any_source else NONE
        method_text = text(name)

        def begin(
            group: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: Any
        ) -> tuple[int, int, bool]:
            known = groups.get(id(group))
            if known is None or known[0]() is not group:
                known = self._look_at_group(group)
            try:
                sequence = group._get_sequence_number_for_group()
            except Exception:  # a backend without sequence numbers
                sequence = NONE
            shape = dtype = splits = 0
            numel = NONE
            root = NONE
            peer = constant_peer
            tag = NONE
            blocks = True
            # Odd arguments are recorded as unknown; the call itself will judge them.
            try:
                if tensor_of is not None:
                    tensor = tensor_of(args)
                    size = tensor.shape
                    entry = shapes.get(size)
                    if entry is None:
                        entry = self._look_at_shape(size)
                    shape, numel = entry
                    kind = tensor.dtype
                    dtype = dtypes.get(kind, 0) or self._look_at_dtype(kind)
                    blocks = tensor.is_cpu
                if has_peer:
                    peer = args[peer_at]
                if has_tag:
                    tag = args[tag_at]
                if rooted:
                    found = root_of(method, args, kwargs)
                    root = NONE if found is None else found
                if splits_at >= 0:
                    splits = text(splits_of(method, args))
            except Exception:
                pass
            file, function, line = find(frame)
            number = next(numbers)
            place = first + (number - 1) % _RING * _RECORD_BYTES
            slot = place >> 3
            pack_into(
                mapping, place, number, clock(), 0, 0, 0, sequence, numel, tag, get_ident(),
                root, peer, method_text, known[1], 0, shape, dtype, splits,
                file, function, line, 0, number,
            )  # fmt: skip
            slots[Slot.OPERATIONS_TOTAL] = number
            slots[Slot.OPERATION_EVENTS] = next(events)
            if reduces and len(args) > options_at:
                reductions.append((slot, number, args[options_at]))
            return slot, number, blocks

        return begin

    def _wait_wrapper(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock = time.time_ns
        slots = self._slots
        outstanding = self._outstanding
        events = self._events

        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            known = outstanding.get(id(work))
            if known is None:
                return original(work, *args, **kwargs)
            slot = known.slot
            number = known.number
            if slots[slot] == number:
                slots[slot + _WAIT_ENTERED] = clock()
                slots[Slot.OPERATION_EVENTS] = next(events)
            try:
                result = original(work, *args, **kwargs)
            except BaseException:
                if slots[slot] == number:
                    slots[slot + _WAIT_RETURNED] = clock()
                    slots[slot + _FLAGS] |= FAILED
                    slots[Slot.OPERATION_EVENTS] = next(events)
                raise
            if slots[slot] == number:
                slots[slot + _WAIT_RETURNED] = clock()
                if known.blocks:
                    slots[slot + _FLAGS] |= COMPLETED
                slots[Slot.OPERATION_EVENTS] = next(events)
            if known.blocks:
                outstanding.pop(id(work), None)
            return result

        wait.__doc__ = original.__doc__
        return wait

    def _look_at_group(self, group: Any) -> tuple[weakref.ref[Any], int]:
        name = group.group_name
        known = (weakref.ref(group), self._progress.text(str(name)))
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
