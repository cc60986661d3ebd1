"""Functional collectives, which torch's C++ calls: DTensor and ``_functional_collectives``.

They reach the group by ``Functional.cpp`` of torch.  What that copies before it calls the group, it
copies at once, whether the device has filled it or not; so copies are made here, as computations,
and the operator that works in place is called instead.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from hanglab.harness.nccl_emulated.deferral import defer
from hanglab.harness.nccl_emulated.device import EmulatedDevice

_NAMESPACES = ("_c10d_functional", "c10d")
#: Those that copy what they are given, and what does the same in place.
_IN_PLACE = ("all_reduce", "all_reduce_coalesced", "broadcast")


def is_collective(function: Any) -> bool:
    """True of an operator that is no computation, but launches operations of a group."""
    return function.namespace in _NAMESPACES


def launch(
    device: EmulatedDevice, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call such an operator on tensors that wait for the device."""
    name = function._schema.name.rpartition("::")[2]
    copies = name in _IN_PLACE

    def prepared(tensor: torch.Tensor) -> torch.Tensor:
        if not copies and tensor.is_contiguous():
            return tensor
        options = {"memory_format": torch.contiguous_format}
        copy: torch.Tensor = defer(device, torch.ops.aten.clone.default, (tensor,), options)
        return copy

    if name != "wait_tensor":
        args, kwargs = tree_map_only(torch.Tensor, prepared, (args, kwargs))
    if copies:
        function = getattr(torch.ops._c10d_functional, f"{name}_").default
    return function(*args, **kwargs)
