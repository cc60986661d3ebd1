"""Memory of the emulated device: a tensor that does not fit is torch's own error."""

from __future__ import annotations

from typing import Any

import torch

from hanglab.harness.nccl_emulated.device import device_if_any
from hanglab.harness.nccl_emulated.settings import read_settings

#: Functions that make a tensor of the size that is their first argument.
_MAKERS = ("empty", "zeros", "ones", "rand", "randn", "full")


def check_memory(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises torch's own error where a tensor that is to be made finds no room on the device."""
    if name in ("to", "cuda"):
        wanted = args[0].nbytes
    elif name in _MAKERS:
        wanted = _bytes_of_new(name, args, kwargs)
    else:
        return
    total, free = memory()
    if wanted < total and wanted <= free:
        return
    raise torch.OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {_size(wanted)}. GPU "
        f"{torch.cuda.current_device()} has a total capacity of {_size(total)} of which "
        f"{_size(free)} is free (emulated by hanglab)."
    )


def memory() -> tuple[int, int]:
    """Bytes that the device has in all, and those that nobody else has taken."""
    total = read_settings().memory
    device = device_if_any()
    full = device is not None and device.conditions.memory_is_full()
    return total, 0 if full else total


def _bytes_of_new(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    sizes = kwargs.get("size", args)
    if name == "full":
        sizes = kwargs.get("size", args[0])
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = sizes[0]
    count = 1
    for size in sizes:
        count *= int(size)
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    return count * dtype.itemsize


def _size(count: int) -> str:
    """As torch's allocator writes it (``format_size``, c10/cuda/CUDACachingAllocator.cpp)."""
    for unit, bits in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count > 1 << bits:
            return f"{count / (1 << bits):.2f} {unit}"
    return f"{count} bytes"
