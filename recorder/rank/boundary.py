"""Recording at the Python boundary: what passes from Python into a process group.

Flight Recorder knows neither roots nor reduce operations nor split lists, and
on gloo no point-to-point.  torch.distributed's functions end in the methods of
``torch._C._distributed_c10d.ProcessGroup``, which see them all.
DistributedDataParallel's reducer and the functional collectives call the group
from C++ and do not pass here.
"""

from __future__ import annotations

import functools
import itertools
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable
from struct import Struct
from threading import get_ident
from types import FrameType
from typing import Any

from hanglab.recorder.case import layout
from hanglab.recorder.case.backends import backends_in
from hanglab.recorder.case.layout import COMPLETED, DROPPED, FAILED, NONE, Slot
from hanglab.recorder.case.operations import METHODS, Method
from hanglab.recorder.rank.arguments import (
    CallArguments,
    read,
    rest_of,
    takes_a_timeout,
)
from hanglab.recorder.rank.call_site import CallSites
from hanglab.recorder.rank.error_guard import is_the_jobs
from hanglab.recorder.rank.hooks import Hooked
from hanglab.recorder.rank.operation_cells import OperationCell, cells, slot_object
from hanglab.recorder.rank.progress_file import ProgressFile
from hanglab.recorder.rank.signature_cache import SignatureCache
from hanglab.recorder.rank.signatures import Signatures
from hanglab.recorder.rank.wait_timer import COMMUNICATION, WAIT_TIMER, operations_of

#: Fields that are 0 when an operation is entered.
_LATER = ("returned", "wait_entered", "wait_returned", "reduce_op", "flags")

#: Stands for an argument that was not given.
_ABSENT: Any = object()


class Boundary(Hooked):
    """Wraps the methods of ProcessGroup and Work.wait, and undoes it.

    A wrapper also times the wait, while anybody wants to know that (``wait_timer``).
    ``group_seen(group)`` is called once per process group, at its first operation.
    """

    def __init__(
        self,
        progress: ProgressFile,
        sites: CallSites,
        group_seen: Callable[[Any], None],
    ) -> None:
        super().__init__()
        self._progress = progress
        self._slots = progress.slots
        self._mapping = progress.mapping
        self._sites = sites
        self._group_seen = group_seen
        self._signatures = Signatures(progress)
        # What is 0 at first needs no argument: padding is written as zeros.
        fields = ("8x" if name in _LATER else "q" for name in layout.OPERATION_FIELDS)
        self._record = Struct("<" + "".join(fields))
        # Both at once: no other thread comes between a number and its place.
        places = itertools.cycle(cells(progress.mapping, progress.at[layout.OPERATIONS]))
        self._next_cell = zip(itertools.count(1), places).__next__
        #: By a weak reference to the Work, of which there is one for all who ask.
        self._outstanding: dict[weakref.ref[Any], OperationCell] = {}
        self._total = slot_object(progress.mapping, Slot.OPERATIONS_TOTAL)
        self._event = slot_object(progress.mapping, Slot.OPERATION_EVENT)
        #: Number of the operation that was entered last, as the file has it.
        self._latest = [0]
        #: id(group) -> (the group, weakly; its name's text number)
        self._groups: dict[int, tuple[weakref.ref[Any], int]] = {}
        # Reading a reduce operation takes longer than recording all the rest, so
        # it is read later, by the recorder's thread, from the options.
        self._reductions: deque[OperationCell] = deque(maxlen=64)
        #: Classes of groups, written in Python, whose operations a device carries out.
        self._enqueued: set[type] = set()

    def install(self, process_group: type, work: type) -> None:
        """Wrap every method that this torch has.  Wrapping twice does nothing."""
        if self._hooks:
            return
        WAIT_TIMER.entrust(self, process_group, work)
        self._add(process_group, operations_of)
        self._hooks.put(work, "wait", self._wait_wrapper(work.wait))  # type: ignore[attr-defined]

    def uninstall(self) -> None:
        super().uninstall()
        WAIT_TIMER.take_back(self)

    def add(self, owner: type) -> None:
        """Wrap the methods of one more class whose calls are operations of no group."""
        if not self._hooks.has(owner):
            self._add(owner, lambda name: 0)

    def _add(
        self,
        owner: type,
        operations: Callable[[str], int],
        before: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda original: original,
    ) -> None:
        """Wrap a class's methods, by ``before`` first; ``operations`` as of ``operations_of``."""
        for name, method in METHODS.items():
            if name in owner.__dict__:
                original = before(getattr(owner, name))
                wrapper = self._method_wrapper(name, method, original, operations(name))
                self._hooks.put(owner, name, wrapper)

    def add_python_group(self, group: Any) -> None:
        """Wrap the methods of a group's class that is written in Python, and passes no other."""
        owner = type(group)
        if self._hooks.has(owner):
            return
        self._add(owner, operations_of, self._noting_work)
        if any(backend.enqueued for backend in backends_in(str(group.name()))):
            self._enqueued.add(owner)

    def _noting_work(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Have the first Work of each class that is written in Python wrapped, too."""

        @functools.wraps(original)
        def call(group: Any, *args: Any, **kwargs: Any) -> Any:
            work = original(group, *args, **kwargs)
            owner = type(work)
            if "wait" in owner.__dict__ and not self._hooks.has(owner):
                self._hooks.put(owner, "wait", self._wait_wrapper(work.__class__.wait))
            return work

        return call

    def _read(
        self, group: Any, method: Method, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> CallArguments:
        """Arguments of a call, as they say what its operation is."""
        found = read(method, args, kwargs)
        if found.on_cpu and type(group) in self._enqueued:
            # On a device all the same: a wait that returns does not say that it is done.
            found = found._replace(on_cpu=False)
        return found

    def enter(
        self, method: str, splits: str, frame: Any, sequence: int = NONE
    ) -> tuple[OperationCell, int]:
        """Record a call that is no method of a group; returns its cell and number."""
        site = self._sites.find(frame)
        found = CallArguments(on_cpu=False, splits=splits)
        signature = self._signatures.number(method, 0, site, found)
        return self._begin(signature, sequence)

    def leave(self, cell: OperationCell, number: int, failed: bool) -> None:
        """The call that ``enter`` recorded has come back."""
        if cell.number == number:
            self._slots[cell.flags] |= FAILED if failed else COMPLETED
            cell.times.returned = self._event.value = time.time_ns()

    def read_reductions(self) -> None:
        """Add the reduce operations of the latest operations to their records."""
        while self._reductions:
            cell = self._reductions.popleft()
            # In this order: another operation may get the cell meanwhile.
            number = cell.number
            options = cell.options
            if options is not None and options is not _ABSENT:
                text = self._progress.text(_reduce_op(options))
                if cell.number == number:
                    cell.options = None
                    self._slots[cell.reduce_op] = text

    def read_completions(self) -> None:
        """Mark the operations that have finished although nobody has waited for them yet.

        Asks only those on the CPU: a device's events must not be queried while a
        graph is captured, and Flight Recorder knows of them anyway.
        """
        for reference, cell in list(self._outstanding.items()):
            number = cell.number
            work = reference()
            if work is None:
                self._note_gone(reference, cell)
            if work is None or cell.work is not reference or not self._wait_completes(cell):
                continue
            try:
                flags = COMPLETED if work.is_completed() else 0
            except Exception:  # a backend's own complaint about its own operation
                flags = FAILED
            if flags and cell.number == number:
                self._slots[cell.flags] |= flags

    def forget_the_gone(self) -> None:
        """Drop what is kept of operations whose Work nobody holds any more."""
        for reference, cell in list(self._outstanding.items()):
            if reference() is None:
                self._note_gone(reference, cell)
                self._outstanding.pop(reference, None)

    def _note_gone(self, reference: weakref.ref[Any], cell: OperationCell) -> None:
        # With another operation its place in the ring has another Work, or none yet.
        if cell.work is reference:
            self._slots[cell.flags] |= DROPPED

    def _begin(self, signature: int, sequence: int) -> tuple[OperationCell, int]:
        """Write the record of an operation that is about to begin."""
        number, cell = self._next_cell()
        cell.work = cell.options = None
        cell.number = number
        self._record.pack_into(
            self._mapping, cell.place, number, time.time_ns(), sequence, get_ident(), signature,
            number,
        )  # fmt: skip
        self._total.value = self._latest[0] = number
        return cell, number

    def _method_wrapper(
        self, name: str, method: Method, original: Any, operations: int
    ) -> Callable[..., Any]:
        # This runs at every operation of the job: everything is a local name, what
        # is rare stands in functions of its own, what is common in none.  CallArguments that
        # are named one by one need not be packed and unpacked.
        general = self._general_wrapper(name, method, original, operations)
        tensor_at, options_at, reduces = method.tensor, method.options, method.reduces
        if tensor_at < 0 or method.splits >= 0:
            return general
        call = original

        def use(now: Callable[..., Any]) -> None:
            nonlocal call
            call = now

        WAIT_TIMER.follow(self, original, COMMUNICATION, operations, use)
        clock = time.time_ns
        frame_at = sys._getframe
        thread = get_ident
        reference = weakref.ref
        absent = _ABSENT
        mapping = self._mapping
        pack_into = self._record.pack_into
        next_cell = self._next_cell
        shortcuts = SignatureCache(self._sites, self._signatures)
        by_code, nowhere = shortcuts.by_code, shortcuts.nowhere
        read_call = self._read
        find, text_of, signatures = self._sites.find, self._text_of, self._signatures
        after_call = self._after_call
        note_reduction = self._reductions.append
        outstanding = self._outstanding
        total, event, latest = self._total, self._event, self._latest
        tensor_is_second = tensor_at == 1
        options_are_second = options_at == 1
        rest_of_call = rest_of(method)

        def sign_anew(group: Any, frame: FrameType, args: tuple[Any, ...]) -> int:
            found = read_call(group, method, args, {})
            number = signatures.number(name, text_of(group), find(frame), found, method.waits)
            try:
                tensor = args[tensor_at]
                if type(tensor) is list:
                    tensor = tensor[0]
                third = args[2] if len(args) > 2 else absent
                rest = None if rest_of_call is None else rest_of_call(args[1], third)
                wanted = tensor.dtype, tensor.is_cpu, rest
                shortcuts.add(frame, group, tensor.shape, wanted, number)
            except Exception as error:
                if is_the_jobs(error):
                    raise
            return number

        def wrapper(
            group: Any,
            first: Any = absent,
            second: Any = absent,
            third: Any = absent,
            /,
            *more: Any,
            **kwargs: Any,
        ) -> Any:
            if second is absent or more or kwargs:
                given = [arg for arg in (first, second, third) if arg is not absent]
                return general(group, *given, *more, **kwargs)
            try:
                try:
                    sequence = group._get_sequence_number_for_group()
                except Exception as error:  # a backend without sequence numbers
                    if is_the_jobs(error):
                        raise
                    sequence = NONE
                # Odd arguments are recorded as unknown; the call itself will judge them.
                try:
                    frame: FrameType | None = frame_at(1)
                    sites = by_code[id(frame.f_code)]  # type: ignore[union-attr]
                    while sites is None:
                        frame = frame.f_back  # type: ignore[union-attr]
                        if frame is None:
                            by_group = nowhere
                            break
                        sites = by_code[id(frame.f_code)]
                    else:
                        by_group = sites[frame.f_lasti]  # type: ignore[union-attr]
                    tensor = second if tensor_is_second else first
                    if type(tensor) is list:
                        tensor = tensor[0]
                    dtype, on_cpu, rest, signature = by_group[id(group)][tensor.shape]
                    if dtype is not tensor.dtype or on_cpu is not tensor.is_cpu:
                        raise KeyError
                    if rest_of_call is not None and rest != rest_of_call(second, third):
                        raise KeyError
                except Exception as error:
                    if is_the_jobs(error):
                        raise
                    args = (first, second) if third is absent else (first, second, third)
                    signature = sign_anew(group, frame_at(1), args)
                number, cell = next_cell()
                # What is left of the one before goes first: other threads may look at any time.
                cell.work = cell.options = None
                cell.number = number
                pack_into(
                    mapping, cell.place, number, clock(), sequence, thread(), signature, number
                )
                total.value = latest[0] = number
                if reduces:
                    cell.options = second if options_are_second else third
                    note_reduction(cell)
            except Exception as error:
                if is_the_jobs(error):
                    raise
                if third is absent:
                    return original(group, first, second)
                return original(group, first, second, third)
            try:
                if third is absent:
                    work = call(group, first, second)
                else:
                    work = call(group, first, second, third)
            except BaseException:
                after_call(cell, number, failed=True)
                raise
            # The ring may have come round while the call lasted.
            if work is None:
                after_call(cell, number, done=True)
            elif cell.number is number:
                cell.times.returned = now = clock()
                if latest[0] is not number:
                    event.value = now
                try:
                    cell.work = waiting_for = reference(work)
                    outstanding[waiting_for] = cell
                except TypeError:  # a backend's own kind of Work
                    return work
            return work

        wrapper.__name__ = wrapper.__qualname__ = name
        wrapper.__doc__ = original.__doc__
        return wrapper

    def _general_wrapper(
        self, name: str, method: Method, original: Any, operations: int
    ) -> Callable[..., Any]:
        """Wrapper for any arguments, given in any way."""
        call = original

        def use(now: Callable[..., Any]) -> None:
            nonlocal call
            call = now

        WAIT_TIMER.follow(self, original, COMMUNICATION, operations, use)

        def wrapper(group: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                try:
                    sequence = group._get_sequence_number_for_group()
                except Exception as error:  # a backend without sequence numbers
                    if is_the_jobs(error):
                        raise
                    sequence = NONE
                site = self._sites.find(sys._getframe(1))
                found = self._read(group, method, args, kwargs)
                signature = self._signatures.number(
                    name, self._text_of(group), site, found, method.waits
                )
                cell, number = self._begin(signature, sequence)
                if method.reduces and len(args) > method.options:
                    cell.options = args[method.options]
                    self._reductions.append(cell)
            except Exception as error:
                if is_the_jobs(error):
                    raise
                return original(group, *args, **kwargs)
            try:
                work = call(group, *args, **kwargs)
            except BaseException:
                self._after_call(cell, number, failed=True)
                raise
            self._after_call(cell, number, done=work is None)
            if work is not None and cell.number == number:
                try:
                    cell.work = reference = weakref.ref(work)
                    self._outstanding[reference] = cell
                except TypeError:  # a backend's own kind of Work
                    return work
            return work

        wrapper.__name__ = wrapper.__qualname__ = name
        wrapper.__doc__ = original.__doc__
        return wrapper

    def _wait_wrapper(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock = time.time_ns
        reference = weakref.ref
        absent = _ABSENT
        take = self._outstanding.pop
        event, latest = self._event, self._latest
        after_wait_failed = self._after_wait_failed
        call = original

        def use(now: Callable[..., Any]) -> None:
            nonlocal call
            call = now

        WAIT_TIMER.follow(self, original, COMMUNICATION, 0, use)

        def wait(work: Any, timeout: Any = absent) -> Any:
            try:
                known = reference(work)
                cell = take(known, None)
            except TypeError as error:  # a kind of Work that cannot be kept track of
                if is_the_jobs(error):
                    raise
                cell = None
            number = 0 if cell is None else cell.number
            if cell is None or cell.work is not known:
                return call(work) if timeout is absent else call(work, timeout)
            cell.times.wait_entered = now = clock()
            if latest[0] is not number:
                event.value = now
            try:
                result = call(work) if timeout is absent else call(work, timeout)
            except BaseException:
                after_wait_failed(cell, number)
                raise
            if cell.number is number:
                cell.times.wait_returned = now = clock()
                if latest[0] is not number:
                    event.value = now
            return result

        def wait_otherwise(work: Any, *args: Any, **kwargs: Any) -> Any:
            if not args and not kwargs:
                return wait(work)
            return call(work, *args, **kwargs)

        # To take arguments that nobody gives costs a wait a good part of what it may.
        made = wait if takes_a_timeout(original) else wait_otherwise
        made.__name__ = made.__qualname__ = "wait"
        made.__doc__ = original.__doc__
        return made

    def _after_call(
        self, cell: OperationCell, number: int, *, done: bool = False, failed: bool = False
    ) -> None:
        """A call has come back, or has raised."""
        if cell.number == number:
            slots = self._slots
            if failed:
                slots[cell.flags] |= FAILED
            elif done and self._wait_completes(cell):
                slots[cell.flags] |= COMPLETED
            cell.times.returned = self._event.value = time.time_ns()

    def _after_wait_failed(self, cell: OperationCell, number: int) -> None:
        if cell.number == number:
            slots = self._slots
            # First: a wait that has returned and not failed tells that the operation is done.
            slots[cell.flags] |= FAILED
            cell.times.wait_returned = self._event.value = time.time_ns()

    def _wait_completes(self, cell: OperationCell) -> bool:
        return self._signatures.wait_completes(self._slots[cell.signature])

    def _text_of(self, group: Any) -> int:
        """Number of the text of a group's name."""
        known = self._groups.get(id(group))
        if known is not None and known[0]() is group:
            return known[1]
        number = self._progress.text(name_of(group))
        if len(self._groups) > 4096:
            self._groups.clear()
        self._groups[id(group)] = weakref.ref(group), number
        self._group_seen(group)
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


def _reduce_op(options: Any) -> str:
    """``sum``, ``max`` ... from options or from a bare reduce operation; "" if unknown."""
    try:
        reduction = getattr(options, "reduceOp", options)
        kind = getattr(reduction, "op", reduction)
        return str(kind).rpartition(".")[2].rstrip(">").partition(":")[0].lower()
    except Exception:
        return ""
