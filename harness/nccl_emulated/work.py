"""Work: what a call gives its host, and what waiting for it means.

``wait`` lets the current stream wait and returns (``synchronizeStream``, ProcessGroupNCCL.cpp of
torch 2.13).  It blocks the host of a barrier, with TORCH_NCCL_BLOCKING_WAIT, with a time limit,
and for integers that C++ reads next: DistributedDataParallel compares shapes and buckets there,
where no hook of Python is.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import Work
from torch.distributed import DistBackendError

from hanglab.harness.nccl_emulated.operation import DeviceOperation
from hanglab.harness.nccl_emulated.ring import RingEntry
from hanglab.harness.nccl_emulated.stream import current_stream

if TYPE_CHECKING:
    from hanglab.harness.nccl_emulated.launches import Launches


class EmulatedWork(Work):
    """One launched operation, or a batch of them."""

    def __init__(
        self,
        group: Launches,
        kind: str,
        sequence: int,
        operation: DeviceOperation,
        entry: RingEntry,
        outputs: Sequence[torch.Tensor],
        blocks: bool = False,
    ) -> None:
        super().__init__()
        self.group = group
        self.rank = group.rank
        self.kind = kind
        self.sequence = sequence
        self.operation = operation
        self.entry = entry
        self.timeout_ms = entry.timeout_ms
        self._outputs = outputs
        self._blocks = blocks or group.blocking_wait

    def wait(self, timeout: timedelta | None = None) -> bool:
        operation = self.operation
        current_stream().wait(operation)
        limit = timeout.total_seconds() if timeout is not None and timeout else None
        if limit is not None or self._blocks or self._is_read_in_cpp(sys._getframe(1)):
            if not self.group.device.wait_for([operation], limit):
                raise DistBackendError(
                    f"[Rank {self.rank}] Work {self} timed out in blocking wait."
                )
        elif operation.error is not None:
            raise operation.error
        return True

    def _is_read_in_cpp(self, caller: Any) -> bool:
        """True if C++ waits for integers: its caller in Python calls no ``wait``."""
        if all(t.dtype.is_floating_point or t.dtype.is_complex for t in self._outputs):
            return False
        while caller.f_code.co_name.startswith("wait"):  # a recorder's, around this one
            caller = caller.f_back
        return "wait" not in caller.f_code.co_names

    def synchronize(self) -> None:
        current_stream().wait(self.operation)

    def is_completed(self) -> bool:
        return self.operation.done

    def is_success(self) -> bool:
        return self.operation.done and self.operation.error is None

    def exception(self) -> Exception | None:
        return self.operation.error

    def result(self) -> list[torch.Tensor]:
        return list(self._outputs)

    def get_future(self) -> torch.futures.Future[Any]:
        """Complete at once, as torch's CUDAFuture is: its values are the device's."""
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(self.result())
        return future

    def elapsed_ms(self) -> float:
        return (time.monotonic() - self.operation.launched) * 1000

    def __str__(self) -> str:
        def numel(rows: Sequence[tuple[torch.Size, torch.dtype]]) -> int:
            return sum(shape.numel() for shape, _ in rows)

        return (
            f"WorkNCCL(SeqNum={self.sequence}, OpType={self.kind}, NumelIn="
            f"{numel(self.entry.inputs)}, NumelOut={numel(self.entry.outputs)}, "
            f"Timeout(ms)={self.timeout_ms})"
        )
