"""Turning a process into a rank of an emulated job: scripts for NCCL run as they are.

Ranks that hanglab starts on this backend call :func:`activate` before their script.  Who names
``nccl``, or a pair with it such as ``cpu:gloo,cuda:nccl``, gets the emulated backend, and is told.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from hanglab.harness.nccl_emulated.cuda import emulate_cuda
from hanglab.harness.nccl_emulated.names import NAME, SPELLINGS, parts_of
from hanglab.harness.nccl_emulated.registration import (
    Binding,
    check_torch,
    place_of_backend,
    register,
)

_ACTIVE = False
_TOLD: set[str] = set()


def activate() -> None:
    """Register the backend, let it stand in for NCCL, and emulate ``torch.cuda``."""
    global _ACTIVE
    if _ACTIVE:
        return
    _ACTIVE = True
    check_torch()
    register()
    emulate_cuda()
    _replace("init_process_group", _with_emulated_backend)
    _replace("new_group", _with_emulated_backend)
    _replace("split_group", _with_accelerator)
    _replace("is_nccl_available", lambda original: lambda: True)


def _replace(name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = getattr(c10d, name)
    wrapped = functools.wraps(original)(wrap(original))
    setattr(c10d, name, wrapped)
    setattr(dist, name, wrapped)


def _with_emulated_backend(original: Callable[..., Any]) -> Callable[..., Any]:
    place = place_of_backend(original)

    def call(*args: Any, **kwargs: Any) -> Any:
        given = args[place] if len(args) > place else kwargs.get("backend")
        backend = emulated_backend(given, default=original.__name__ == "init_process_group")
        if len(args) > place:
            args = (*args[:place], backend, *args[place + 1 :])
        elif backend is not None:
            kwargs["backend"] = backend
        # torch takes no CPU here, where the tensors of the emulated device lie.
        device = kwargs.pop("device_id", None)
        if original.__name__ == "init_process_group":
            Binding.bound = device is not None
        made = original(*args, **kwargs)
        if Binding.bound and original.__name__ == "init_process_group":
            # So torch has who is in no new group take part in its split.
            c10d._get_default_group().bound_device_id = _with_index(device)
        return made

    return call


def _with_accelerator(original: Callable[..., Any]) -> Callable[..., Any]:
    """torch asks for an accelerator here alone, which a CPU is not."""

    def call(*args: Any, **kwargs: Any) -> Any:
        names = {
            "is_available": lambda: True,
            "current_accelerator": lambda check_available=False: torch.device("cuda"),
        }
        kept = {name: getattr(torch.accelerator, name) for name in names}
        try:
            for name, answer in names.items():
                setattr(torch.accelerator, name, answer)
            return original(*args, **kwargs)
        finally:
            for name, answer in kept.items():
                setattr(torch.accelerator, name, answer)

    return call


def _with_index(device: Any) -> torch.device:
    given = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    return given if given.index is not None else torch.device("cuda", 0)


def emulated_backend(backend: str | None, default: bool = False) -> str | None:
    """The backend that is there for one that a script names; None stays as it is in a group."""
    if backend is None:
        return NAME if default else None
    if not any(part == "nccl" or part in SPELLINGS for part in parts_of(backend)):
        return backend
    if str(backend) not in (*SPELLINGS, "nccl") and backend not in _TOLD:
        _TOLD.add(backend)
        print(
            f"hanglab: the backends {backend!r} become {NAME!r} for all tensors, since those of "
            "the emulated device lie on the CPU",
            file=sys.stderr,
        )
    return NAME
