"""Reducing what the members of a communicator have handed over.

Every member reduces the same bytes in the same order, so all get the same bits; a member whose
operation or type is another one gets something else, and nobody is told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed import ReduceOp

from hanglab.harness.nccl_emulated.settings import EmulationError

#: Shape [size, n] of one type to shape [n].
Reduce = Callable[[torch.Tensor, torch.Tensor], None]


def _sum(parts: torch.Tensor, out: torch.Tensor) -> None:
    torch.sum(parts, 0, dtype=out.dtype, out=out)


def _average(parts: torch.Tensor, out: torch.Tensor) -> None:
    _sum(parts, out)
    if out.dtype.is_floating_point or out.dtype.is_complex:
        out.div_(parts.shape[0])
    else:
        out.div_(parts.shape[0], rounding_mode="trunc")


def _product(parts: torch.Tensor, out: torch.Tensor) -> None:
    torch.prod(parts, 0, dtype=out.dtype, out=out)


def _smallest(parts: torch.Tensor, out: torch.Tensor) -> None:
    torch.amin(parts, 0, out=out)


def _largest(parts: torch.Tensor, out: torch.Tensor) -> None:
    torch.amax(parts, 0, out=out)


_BY_OP = {
    int(kind.value): reduce
    for kind, reduce in (
        (ReduceOp.SUM, _sum),
        (ReduceOp.AVG, _average),
        (ReduceOp.PRODUCT, _product),
        (ReduceOp.MIN, _smallest),
        (ReduceOp.MAX, _largest),
    )
}


class PremulSum:
    """A sum of what each member has multiplied by a factor of its own before it hands it over.

    ``ncclRedOpCreatePreMulSum`` (NCCL 2.11 and later); torch makes one with ``ReduceOp.PREMUL_SUM``
    of a number or a tensor, for floating types alone (``unpackPreMulSum``, ProcessGroupNCCL.cpp).
    """

    def __init__(self, factor: float | torch.Tensor) -> None:
        self.factor = factor

    def __call__(self, parts: torch.Tensor, out: torch.Tensor) -> None:
        _sum(parts, out)


def handed_over(tensor: torch.Tensor, reduce: Reduce) -> torch.Tensor:
    """Tensor that a member hands over for a reduction; a factor that is a tensor is read now."""
    if not isinstance(reduce, PremulSum):
        return tensor
    return (tensor.detach() * reduce.factor).to(tensor.dtype)


def with_factor(reduce: Reduce, *tensors: torch.Tensor) -> list[torch.Tensor] | None:
    """All that a reduction reads or writes, where that is more than its tensors.

    Raises EmulationError where the tensors cannot be multiplied, as torch does in the call.
    """
    if not isinstance(reduce, PremulSum):
        return None
    if not all(one.dtype.is_floating_point for one in tensors):
        raise EmulationError(
            "PreMulSum Data type must be half, float, bfloat16 or double.", "Use SUM for integers."
        )
    return [*tensors, reduce.factor] if isinstance(reduce.factor, torch.Tensor) else None


def reduction(op: ReduceOp | ReduceOp.RedOpType) -> Reduce:
    """Function of a reduce operation; raises EmulationError for those that NCCL has not either."""
    kind: Any = getattr(op, "op", op)
    found = _BY_OP.get(int(kind))  # To compare them as they are takes microseconds.
    if found is None and kind == ReduceOp.PREMUL_SUM:
        made: Any = op
        return PremulSum(made.__getstate__()[1])
    if found is None:
        name = str(kind).rpartition(".")[2]
        raise EmulationError(
            f"Cannot use ReduceOp.{name} with NCCL.",
            "It has SUM, AVG, PRODUCT, MIN, MAX and PREMUL_SUM.",
        )
    return found
