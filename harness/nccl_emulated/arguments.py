"""Arguments of torch's calls, checked as ProcessGroupNCCL.cpp checks them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hanglab.harness.nccl_emulated.settings import EmulationError


def only(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    if len(tensors) != 1:
        raise EmulationError("NCCL takes one tensor for each rank.", "Call once for each tensor.")
    check(tensors[0])
    return tensors[0]


def check(*tensors: torch.Tensor) -> None:
    for tensor in tensors:
        if not tensor.is_cpu:
            raise EmulationError(
                f"A tensor on {tensor.device} was given to the emulated backend, whose data is "
                "in the memory of the host.",
                "Leave the tensor on the CPU, or use the backend nccl on a machine with a GPU.",
            )
        if tensor.layout is not torch.strided or not tensor.is_contiguous():
            raise ValueError("Tensors must be contiguous")


def reduce_op_of(options: Any) -> Any:
    return torch.distributed.ReduceOp.SUM if options is None else options.reduceOp


def root_of(options: Any) -> int:
    return 0 if options is None else int(options.rootRank)


def split(tensor: torch.Tensor, sizes: Sequence[int], size: int) -> list[torch.Tensor]:
    """Parts along the first dimension: as listed, or equal ones."""
    if not sizes:
        if tensor.numel() and tensor.shape[0] % size:
            raise EmulationError(
                "Tensor's dim 0 does not divide equally across group size", "Give split sizes."
            )
        sizes = [(tensor.shape[0] if tensor.dim() else 0) // size] * size
    starts = [sum(sizes[:index]) for index in range(size)]
    return [tensor[start : start + n] for start, n in zip(starts, sizes, strict=True)]
