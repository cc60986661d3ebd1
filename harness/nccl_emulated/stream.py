"""The host's current stream: what later work of the device was told to wait for.

torch's ``Work.wait`` lets the current stream wait and not the host, and each operation of NCCL
first lets its own stream wait for the current one (``synchronizeStream`` and ``syncStream`` of
ProcessGroupNCCL.cpp, torch 2.13).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from hanglab.harness.nccl_emulated.communicator import Communicator
from hanglab.harness.nccl_emulated.device import EmulatedDevice, current_device
from hanglab.harness.nccl_emulated.operation import DeviceOperation
from hanglab.harness.nccl_emulated.rounds import Kernel


class Captured(NamedTuple):
    """An operation that a graph launches at each replay."""

    name: str
    kernel: Callable[[], Kernel]
    tensors: Sequence[torch.Tensor]
    #: None for a computation.
    communicator: Communicator | None


class CurrentStream:
    """One for the process, as the host's threads use it."""

    def __init__(self, device: EmulatedDevice) -> None:
        self._device = device
        #: The last operation of each queue that it was told to wait for: a queue is first in,
        #: first out, so that those before are done by then.
        self._awaited: dict[Communicator | None, DeviceOperation] = {}
        #: Where what is launched goes while a graph is captured.
        self.capture: list[Captured] | None = None

    def wait(self, operation: DeviceOperation) -> None:
        """Has what is launched from now on start when ``operation`` is done."""
        if operation.completed_ns:
            return
        known = self._awaited.get(operation.communicator)
        if known is None or known.number < operation.number:
            self._awaited[operation.communicator] = operation

    @property
    def frontier(self) -> list[DeviceOperation]:
        """Operations that must be done before anything that is launched now may start."""
        return [one for one in list(self._awaited.values()) if not one.completed_ns]

    def operation(
        self,
        name: str,
        kernel: Callable[[], Kernel],
        tensors: Sequence[torch.Tensor],
        communicator: Communicator,
    ) -> DeviceOperation:
        """A communication behind the current stream, to be launched."""
        after = self.frontier if self._awaited else ()
        operation = DeviceOperation(name, kernel, tensors, after, communicator)
        operation.touched = storages_of(tensors)
        return operation

    def compute(self, name: str, run: Callable[[], None], tensors: Sequence[torch.Tensor]) -> None:
        """Launch a computation: behind the stream, and behind whatever touches its tensors."""

        def kernel() -> Kernel:
            run()
            yield from ()

        self.launch_kernel(name, kernel, tensors)

    def launch_kernel(
        self, name: str, kernel: Callable[[], Kernel], tensors: Sequence[torch.Tensor]
    ) -> DeviceOperation | None:
        """Launch it likewise; None where it is captured."""
        if self.capture is not None:
            self.capture.append(Captured(name, kernel, tensors, None))
            return None
        touched = storages_of(tensors)
        pending = self._device.pending
        before = [one for storage in touched if (one := pending.get(storage)) is not None]
        operation = DeviceOperation(name, kernel, tensors, [*self.frontier, *before])
        operation.touched = touched
        self._device.launch(operation)
        self.wait(operation)
        return operation

    def replay(self, captured: Sequence[Captured]) -> None:
        """Launch what a graph has captured, each behind the one before."""
        for one in captured:
            if one.communicator is None:
                self.launch_kernel(one.name, one.kernel, one.tensors)
                continue
            operation = self.operation(one.name, one.kernel, one.tensors, one.communicator)
            self._device.launch(operation)
            self.wait(operation)

    def synchronize(self) -> None:
        """Blocks the host until the stream has done all that it was given."""
        self._device.wait_for(self.frontier)


def storages_of(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Names of the memory that tensors lie in."""
    return [_storage_address(tensor) for tensor in tensors]


#: Its stubs leave it out.  Equal to ``untyped_storage()._cdata``, at a third of its price.
_storage_address: Callable[[torch.Tensor], int] = torch._C._storage_address  # type: ignore[attr-defined]


_STREAM: CurrentStream | None = None


def current_stream() -> CurrentStream:
    """The current stream of this process's device."""
    global _STREAM
    device = current_device()
    if _STREAM is None or _STREAM._device is not device:
        _STREAM = CurrentStream(device)
    return _STREAM
