"""Reads of hosts, which wait for what their device computes.

A dispatch mode sees every operator of the threads that made a group, of those that the script
starts later, and of those that torch's autograd runs for them.  Reads that pass no operator, or
while torch has switched modes off (``tolist``, printing, copies), are methods of Tensor, which are
wrapped.  Of a number in a floating type ``item`` waits for the current stream, as it does on a GPU,
wherever the tensor comes from; of other types, in which data loaders draw their indices, only for
what the tensor itself waits for.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type

from hanglab.harness.nccl_emulated import functional_collectives
from hanglab.harness.nccl_emulated.deferral import (
    defer,
    is_view,
    needs_values,
    tensors_in,
    wait_for_tensors,
)
from hanglab.harness.nccl_emulated.device import device_if_any
from hanglab.harness.nccl_emulated.script_threads import use_in_threads
from hanglab.harness.nccl_emulated.stream import current_stream

_READ_ONE = torch.ops.aten._local_scalar_dense.default
#: Methods that hand values to the host without an operator.
_METHODS = ("tolist", "numpy", "cpu", "__repr__", "__reduce_ex__", "__deepcopy__")


#: What CUDA says to whoever waits for a stream that is captured.
CAPTURING = "CUDA error: operation not permitted when stream is capturing"


class HostReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Carries operators out, or launches them behind what their tensors wait for."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else torch imports its compiler, seconds of a job that does not compile.
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if any(is_traceable_wrapper_subclass_type(kind) for kind in types):
            # Such tensors (DTensor, AsyncCollectiveTensor) call operators on those within them.
            return NotImplemented
        kwargs = kwargs or {}
        device = device_if_any()
        if device is None:
            return func(*args, **kwargs)
        capturing = current_stream().capture is not None
        if func is _READ_ONE:
            read(args[0])
            return func(*args, **kwargs)
        pending = device.pending
        if not (pending or capturing) or is_view(func):
            return func(*args, **kwargs)
        tensors = tensors_in(args, kwargs)
        if not capturing and not any(t.untyped_storage()._cdata in pending for t in tensors):
            return func(*args, **kwargs)
        if functional_collectives.is_collective(func):
            return functional_collectives.launch(device, func, args, kwargs)
        if needs_values(func, args):
            if capturing:
                raise RuntimeError(CAPTURING)
            wait_for_tensors(device, tensors)
            return func(*args, **kwargs)
        return defer(device, func, args, kwargs)


def read(tensor: torch.Tensor) -> None:
    """Blocks the host until the value of a tensor is there."""
    device = device_if_any()
    if device is None:
        return
    if current_stream().capture is not None:
        raise RuntimeError(CAPTURING)
    if tensor.dtype.is_floating_point:
        current_stream().synchronize()
    wait_for_tensors(device, [tensor])


def _wrap(name: str) -> None:
    original: Callable[..., Any] = getattr(torch.Tensor, name)

    @functools.wraps(original)
    def method(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if tensor.device.type == "cpu" and tensor.layout is torch.strided:
            read(tensor)
        return original(tensor, *args, **kwargs)

    setattr(torch.Tensor, name, method)


_WRAPPED = False
_ENTERED = threading.local()


def watch_reads() -> None:
    """From now on this thread's operators are seen, and every thread's reads.  Twice is once."""
    global _WRAPPED
    if not _WRAPPED:
        _WRAPPED = True
        for name in _METHODS:
            _wrap(name)
        use_in_threads(_entered_mode)
    if getattr(_ENTERED, "process", None) != os.getpid():
        _entered_mode().__enter__()


def _entered_mode() -> Any:
    """The mode of a thread that begins, which must not enter a second one."""
    _ENTERED.process = os.getpid()
    mode: Any = HostReads
    return mode()
