"""One operation of a rank's device: what it waits for, and how far it has come."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from hanglab.harness.nccl_emulated.communicator import Communicator
    from hanglab.harness.nccl_emulated.rounds import Kernel


class DeviceOperation:
    """A kernel in a queue.  The device alone changes ``started_ns`` and ``completed_ns``."""

    __slots__ = (
        "after", "before", "communicator", "completed_ns", "error", "kernel", "launched", "name",
        "number", "running", "started_ns", "tensors", "touched",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        kernel: Callable[[], Kernel],
        tensors: Sequence[torch.Tensor],
        after: Sequence[DeviceOperation],
        communicator: Communicator | None = None,
    ) -> None:
        self.name = name
        self.kernel = kernel
        #: Kept until it is done, whatever the host lets go of.
        self.tensors = tensors
        #: Those that its stream was told to wait for.
        self.after = after
        #: None for a computation.
        self.communicator = communicator
        #: Place in the order in which this process launched.
        self.number = 0
        self.running: Kernel | None = None
        self.launched = time.monotonic()
        self.started_ns = 0
        self.completed_ns = 0
        #: Operations that touch the same memory, launched earlier.
        self.before: Sequence[DeviceOperation] = ()
        #: What the host meets when it waits for it.
        self.error: Exception | None = None
        #: Storages that nobody may touch before it is done.
        self.touched: Sequence[int] = ()

    @property
    def done(self) -> bool:
        return self.completed_ns != 0

    @property
    def ready(self) -> bool:
        """True if all that it waits for is done."""
        return all(one.completed_ns for one in self.after)
