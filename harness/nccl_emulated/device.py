"""The device of this process: a thread that carries out what hosts have launched.

One queue for computations, which is the host's current stream, and one for each communicator,
as NCCL's process group has a stream for each (``ncclStreams_`` in torch's ProcessGroupNCCL.cpp,
2.13).  An operation starts when it is the first of its queue, what it waits for is done and,
if it communicates, one of the slots is free; it keeps the slot until it is done.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence

import torch

from hanglab.harness.nccl_emulated.communicator import Communicator, Kernel
from hanglab.harness.nccl_emulated.conditions import Conditions
from hanglab.harness.nccl_emulated.doorbell import Address, Doorbell, PeerDoorbell
from hanglab.harness.nccl_emulated.kernels import Joint
from hanglab.harness.nccl_emulated.operation import DeviceOperation
from hanglab.harness.nccl_emulated.segment import SLOTS
from hanglab.harness.nccl_emulated.settings import DeviceSettings, read_settings

Condition = Callable[[], bool]
#: Looks at the queues before the device sleeps.
_LOOKS = 20
#: For the thread to end with the process, in seconds.
_STOP_S = 2.0
#: No stacks are shown of threads whose names begin so.
THREAD_NAME = "hanglab-device"


class EmulatedDevice:
    """All queues, the thread that serves them, and what hosts may ask of them."""

    def __init__(self, settings: DeviceSettings) -> None:
        self.settings = settings
        self.doorbell = Doorbell()
        self.peers: dict[Address, PeerDoorbell] = {}
        self.conditions = Conditions(self.doorbell.control)
        self._computations: deque[DeviceOperation] = deque()
        self._communicators: list[Communicator] = []
        #: Storage -> the last operation that touches it and is not done.
        self.pending: dict[int, DeviceOperation] = {}
        self._free_slots = settings.slots
        self._outstanding = 0
        self._launches = 0
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._stopping = False
        #: (what a host waits for, what it is told by), looked at whenever something is done.
        self._waiting: list[tuple[Condition, threading.Event]] = []
        self._thread = threading.Thread(target=self._serve, name=THREAD_NAME, daemon=True)
        self._thread.start()
        atexit.register(self._stop)

    def _stop(self) -> None:
        """Ends the thread before the interpreter does: in the middle of C++ it would abort."""
        if os.getpid() == self._process:
            self._stopping = True
            self.doorbell.ring()
            self._thread.join(_STOP_S)

    # What hosts do.

    def add(self, communicator: Communicator) -> None:
        self._communicators.append(communicator)

    def launch(self, operation: DeviceOperation) -> None:
        """Put an operation into its queue; blocks while the launch queue is full."""
        if self._outstanding >= self.settings.launch_queue:
            # Not for every single one: a host that is woken takes the device's time.
            low = self.settings.launch_queue * 7 // 8
            self.wait_until(lambda: self._outstanding <= low)
        communicator = operation.communicator
        with self._lock:
            self._outstanding += 1
            self._launches += 1
            operation.number = self._launches
            pending = self.pending
            operation.before = [pending[one] for one in operation.touched if one in pending]
            for storage in operation.touched:
                pending[storage] = operation
        queue = self._computations if communicator is None else communicator.queue
        queue.append(operation)
        self.doorbell.ring()

    def wait_for(
        self, operations: Sequence[DeviceOperation], timeout_s: float | None = None
    ) -> bool:
        """Blocks until all are done; False if that took too long.  Raises what one of them met."""
        came = self.wait_until(lambda: all(one.completed_ns for one in operations), timeout_s)
        for one in operations:
            if one.error is not None:
                raise one.error
        return came

    def wait_until(self, condition: Condition, timeout_s: float | None = None) -> bool:
        """Blocks the host; the condition is looked at on the device's thread."""
        told = threading.Event()
        waiter = (condition, told)
        with self._lock:
            if condition():
                return True
            self._waiting.append(waiter)
        try:
            return told.wait(timeout_s) or condition()
        finally:
            with self._lock:
                self._waiting.remove(waiter)

    @property
    def outstanding(self) -> list[DeviceOperation]:
        """All that is not done, in the order of the queues."""
        found = list(self._computations)
        for communicator in list(self._communicators):
            found += list(communicator.queue)
        return found

    # What the thread does.

    def _serve(self) -> None:
        # Below these keys nothing is recorded for gradients and no version is counted: the
        # host has done both when it launched.
        try:
            with torch.no_grad(), torch._C._AutoDispatchBelowADInplaceOrView():
                while not self._stopping:
                    if self._turn() or self._linger():
                        continue
                    self.doorbell.arm()
                    if self._turn():
                        self.doorbell.disarm()
                        continue
                    self.doorbell.wait(self.conditions.patience_s)
        except BaseException:
            # A device that has broken must not look like one that hangs.
            traceback.print_exc(file=sys.stderr)
            os.abort()

    def _linger(self) -> bool:
        """Gives the processor to peers for a moment: they are often done by then."""
        if not self._outstanding:
            return False
        for _ in range(_LOOKS):
            time.sleep(0)  # for other threads of this process
            os.sched_yield()
            if self._turn():
                return True
        return False

    def _turn(self) -> bool:
        """One look at the head of each queue; True if anything moved."""
        if self.conditions.halted(bool(self._outstanding)):
            return False
        if self.conditions.aborts(bool(self._communicators)):
            for one in self._communicators:
                one.aborted = True
        moved = self._advance(self._computations)
        waiting = [one.queue for one in self._communicators if one.queue]
        if len(waiting) > 1:
            # Slots are given in the order of the launches, whatever the queue.
            waiting.sort(key=lambda queue: queue[0].number)
        for queue in waiting:
            moved = self._advance(queue) or moved
        return moved

    def _advance(self, queue: deque[DeviceOperation]) -> bool:
        moved = False
        while queue:
            operation = queue[0]
            if operation.running is None:
                if not operation.ready or not self.conditions.may_start(operation):
                    return moved
                if operation.communicator is not None:
                    if not self._free_slots:
                        return moved
                    self._free_slots -= 1
                operation.running = operation.kernel()
                operation.error = self.conditions.failure(operation)
                moved = True
            elif not operation.started_ns:
                # Its part lies ready; it begins now.
                if not self._free_slots or not self.conditions.may_start(operation):
                    return moved
                self._free_slots -= 1
                operation.error = self.conditions.failure(operation)
                moved = True
            operation.started_ns = operation.started_ns or time.time_ns()
            try:
                if operation.error is None and not _is_aborted(operation):
                    if self.conditions.holds(operation):
                        return moved
                    self._step(operation)
                    return self._post(queue) or moved
            except StopIteration:
                pass
            except Exception as error:
                # What CUDA does: the kernel is over, and whoever waits for it is told.
                operation.error = error
            if not self.conditions.may_end(operation):
                return moved
            self._complete(operation)
            queue.popleft()
            moved = True
        return moved

    def _post(self, queue: deque[DeviceOperation]) -> bool:
        """Have the next operations of a queue publish their parts; True if one did.

        The head waits for its peers.  Whoever is woken then finds the parts of several operations:
        that is what a small operation costs.  Nothing of it can be seen, as no member gets past
        the head before all have published that.
        """
        if len(queue) < 2 or not self.conditions.sound:
            return False
        posted = False
        for place in range(min(len(queue), SLOTS)):
            operation = queue[place]
            communicator = operation.communicator
            if communicator is None or not isinstance(operation.kernel, Joint):
                break
            if operation.posted:
                continue
            if operation.running is not None or not communicator.has_room:
                break
            if not all(one.completed_ns for one in operation.before):
                break
            if any(
                not one.completed_ns and one.communicator is not communicator
                for one in operation.after
            ):
                break
            communicator.posting = True
            operation.running = operation.kernel()
            try:
                self._step(operation)
            finally:
                communicator.posting = False
            posted = True
        return posted

    def _step(self, operation: DeviceOperation) -> None:
        """Run a kernel until it waits; raises StopIteration when it is through."""
        assert operation.running is not None
        communicator = operation.communicator
        before = 0 if communicator is None else communicator.rounds
        try:
            next(operation.running)
        finally:
            if communicator is not None and communicator.rounds > before:
                operation.posted = True

    def _complete(self, operation: DeviceOperation) -> None:
        if operation.communicator is not None:
            self._free_slots += 1
        pending = self.pending
        with self._lock:
            for storage in operation.touched:
                if pending.get(storage) is operation:
                    del pending[storage]
            operation.completed_ns = time.time_ns()
            # The ring keeps the operation, which must keep no tensor.
            operation.tensors = operation.after = operation.before = ()
            operation.kernel, operation.running = _nothing, None
            self._outstanding -= 1
            for condition, told in self._waiting:
                if condition():
                    told.set()


def _nothing() -> Kernel:
    """The kernel of an operation that is done."""
    yield from ()


def _is_aborted(operation: DeviceOperation) -> bool:
    """True if the kernel ends without being through, and looks done (pytorch#119249)."""
    return operation.communicator is not None and operation.communicator.aborted


_DEVICE: EmulatedDevice | None = None


def current_device() -> EmulatedDevice:
    """This process's device; made at the first call."""
    global _DEVICE
    if _DEVICE is None:
        _DEVICE = EmulatedDevice(read_settings())
    return _DEVICE


def device_if_any() -> EmulatedDevice | None:
    """This process's device, if something has been launched; a forked child has none."""
    return _DEVICE


def _forget_in_child() -> None:
    global _DEVICE
    _DEVICE = None


os.register_at_fork(after_in_child=_forget_in_child)
