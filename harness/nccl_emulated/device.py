"""The device of this process: a thread that carries out what hosts have launched.

One queue for computations, which is the host's current stream, and one for each communicator,
as NCCL's process group has a stream for each (``ncclStreams_`` in torch's ProcessGroupNCCL.cpp,
2.13).
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence

import torch

from hanglab.harness.nccl_emulated.communicator import Communicator
from hanglab.harness.nccl_emulated.conditions import Conditions
from hanglab.harness.nccl_emulated.operation import DeviceOperation
from hanglab.harness.nccl_emulated.ras import serve_if_asked
from hanglab.harness.nccl_emulated.rounds import Kernel
from hanglab.harness.nccl_emulated.scheduling import Scheduler
from hanglab.harness.nccl_emulated.settings import DeviceSettings, read_settings
from hanglab.harness.nccl_emulated.snapshots import snapshot
from hanglab.harness.nccl_emulated.wakeup import Address, PeerWakeup, Wakeup
from hanglab.recorder.rank.processor_usage import count_waits_of

Condition = Callable[[], bool]
#: Looks at the queues before the device sleeps.
_LOOKS = 8
#: Between what was done last and a sleep from which the next launch wakes it, in seconds.
_PAUSE_S = 50e-6
#: For the thread to end with the process, in seconds.
_STOP_S = 10.0
#: No stacks are shown of threads whose names begin so.
THREAD_NAME = "hanglab-device"


class EmulatedDevice:
    """All queues, the thread that serves them, and what hosts may ask of them."""

    def __init__(self, settings: DeviceSettings) -> None:
        self.settings = settings
        self.wakeup = Wakeup()
        self.peers: dict[Address, PeerWakeup] = {}
        self.conditions = Conditions(self.wakeup.control)
        self._scheduler = Scheduler(settings.slots, self.conditions, self._complete)
        #: Storage -> the last operation that touches it and is not done.
        self.pending: dict[int, DeviceOperation] = {}
        self._outstanding = 0
        self._launches = 0
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._stopping = False
        #: (what a host waits for, what it is told by), looked at whenever something is done.
        self._waiting: list[tuple[Condition, threading.Event]] = []
        self._thread = threading.Thread(target=self._serve, name=THREAD_NAME, daemon=True)
        self._thread.start()
        # Else a host that waits for its device, where processors lack, waits by its own doing.
        count_waits_of(self._thread.native_id or os.getpid())
        atexit.register(self._stop)

    def _stop(self) -> None:
        """Ends the thread before the interpreter does: in the middle of C++ it would abort."""
        if os.getpid() == self._process:
            self._stopping = True
            self.wakeup.ring()
            self._thread.join(_STOP_S)

    # What hosts do.

    def add(self, communicator: Communicator) -> None:
        self._scheduler.communicators.append(communicator)
        serve_if_asked(self._living)

    def _living(self) -> list[Communicator]:
        return [one for one in list(self._scheduler.communicators) if not one.has_left]

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
        queue = self._scheduler.computations if communicator is None else communicator.queue
        queue.append(operation)
        if len(queue) == 1:  # not its head, which the device may have taken off by now
            # Others are found when the device has done with the head, or hears of a peer.
            self.wakeup.ring()

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
        found = snapshot(self._scheduler.computations)
        for communicator in list(self._scheduler.communicators):
            found += snapshot(communicator.queue)
        return found

    # What the thread does.

    def _serve(self) -> None:
        # Below these keys nothing is recorded for gradients and no version is counted: the
        # host has done both when it launched.
        try:
            with torch.no_grad(), torch._C._AutoDispatchBelowADInplaceOrView():
                while not self._stopping:
                    if self._scheduler.turn() or self._linger():
                        continue
                    self.wakeup.arm()
                    if self._scheduler.turn():
                        self.wakeup.disarm()
                        continue
                    self.wakeup.wait(self.conditions.patience_s)
        except BaseException:
            # A device that has broken must not look like one that hangs.
            traceback.print_exc(file=sys.stderr)
            os.abort()

    def _linger(self) -> bool:
        """Gives the processor to peers for a moment: they are often done by then."""
        if not self._outstanding:
            # A host that launches one after the other need not wake the device for each.
            time.sleep(_PAUSE_S)
            return self._scheduler.turn()
        for _ in range(_LOOKS):
            time.sleep(0)  # for other threads of this process
            os.sched_yield()
            if self._scheduler.turn():
                return True
        return False

    def _complete(self, operations: Sequence[DeviceOperation]) -> None:
        pending = self.pending
        with self._lock:
            for operation in operations:
                if operation.error is not None and operation.communicator is not None:
                    operation.communicator.note_error()
                for storage in operation.touched:
                    if pending.get(storage) is operation:
                        del pending[storage]
                # The ring keeps the operation, which must keep no tensor.
                operation.tensors = operation.after = operation.before = ()
                operation.kernel, operation.running = _nothing, None
            self._outstanding -= len(operations)
            for condition, told in self._waiting:
                if condition():
                    told.set()


def _nothing() -> Kernel:
    """The kernel of an operation that is done."""
    yield from ()


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
