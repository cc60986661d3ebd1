"""``torch.cuda`` without CUDA: what scripts for NCCL ask of it, answered by the emulated device.

Only what lies below torch's own Python is replaced, so that stacks show ``synchronize`` of
``torch/cuda/__init__.py`` as they do on a GPU.  A tensor for ``cuda:N`` is made on the CPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch.distributed import distributed_c10d as c10d
from torch.overrides import TorchFunctionMode

from hanglab.harness.nccl_emulated import cuda_graphs
from hanglab.harness.nccl_emulated.cuda_streams import Event, Stream, current, use_stream
from hanglab.harness.nccl_emulated.device import current_device
from hanglab.harness.nccl_emulated.memory import check_memory, memory
from hanglab.harness.nccl_emulated.rounds import Kernel
from hanglab.harness.nccl_emulated.script_threads import use_in_threads
from hanglab.harness.nccl_emulated.settings import read_settings
from hanglab.harness.nccl_emulated.stream import current_stream

_CPU = torch.device("cpu")
#: Clock of the device that ``_sleep`` counts in, cycles in a second.
_CLOCK_HZ = 1_500_000_000


class CudaTensors(TorchFunctionMode):
    """Makes tensors on the CPU that a script wants on a GPU."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if "device" in kwargs and _is_cuda(kwargs["device"]):
            check_memory(name, args, kwargs)
            kwargs = {**kwargs, "device": _CPU}
        if name == "to" and len(args) > 1 and _is_cuda(args[1]):
            check_memory(name, args, kwargs)
            args = (args[0], _CPU, *args[2:])
        elif name in ("cuda", "pin_memory") and args:
            check_memory(name, args, kwargs)
            return args[0]
        return func(*args, **kwargs)


def _is_cuda(device: Any) -> bool:
    if isinstance(device, torch.device):
        return device.type == "cuda"
    if isinstance(device, str):
        return device.startswith("cuda")
    return type(device) is int


#: Kinds of tensors that have no way of their own through torch's functions.
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _is_plain(argument: Any) -> bool:
    if type(argument) is list:
        return all(type(one) in _PLAIN for one in argument)
    return type(argument) in _PLAIN


def _shorten_way_of_collectives() -> None:
    """Have torch.distributed's calls pass our mode, which has nothing to do in them, at once.

    The way that torch goes costs a small collective a fifth of its host's time: each attribute of
    a tensor passes the mode, or the mode is taken down and put up again.
    """
    functions: Any = c10d
    original = getattr(functions, "handle_torch_function", None)
    if original is None:  # a torch that asks no mode there
        return
    modes: Callable[[], int] = torch._C._len_torch_function_stack

    def handle_torch_function(public: Any, relevant: Any, *args: Any, **kwargs: Any) -> Any:
        if modes() == 1:  # ours alone
            for one in relevant:
                if type(one) not in _PLAIN and not _is_plain(one):
                    break
            else:
                with torch._C.DisableTorchFunction():
                    # Its log of exceptions has been entered already.
                    return getattr(public, "__wrapped__", public)(*args, **kwargs)
        return original(public, relevant, *args, **kwargs)

    functions.handle_torch_function = handle_torch_function


def synchronize() -> None:
    """Blocks the host until the device has done all that was launched, on every stream."""
    device = current_device()
    device.wait_for(device.outstanding)


def sleep(cycles: int) -> None:
    """A kernel that is busy for so many cycles, on the current stream."""
    import time

    seconds = cycles / _CLOCK_HZ

    def kernel() -> Kernel:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            yield

    current_stream().launch_kernel("sleep", kernel, ())


class _Selected:
    """The device that the rank has chosen."""

    def __init__(self) -> None:
        self.index = 0

    def set(self, index: int) -> None:
        self.index = index

    def exchange(self, index: int) -> int:
        before, self.index = self.index, self.index if index < 0 else index
        return before


def _count() -> int:
    return read_settings().devices or int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def _properties(device: Any = None) -> SimpleNamespace:
    return SimpleNamespace(
        name="emulated by hanglab", major=9, minor=0, total_memory=read_settings().memory,
        multi_processor_count=132, is_integrated=False, is_multi_gpu_board=False,
    )  # fmt: skip


def emulate_cuda() -> None:
    """From now on this process has emulated GPUs, as far as ``torch.cuda`` tells."""
    selected = _Selected()
    below: dict[str, Callable[..., Any]] = {
        "_cuda_synchronize": synchronize,
        "_cuda_getDeviceCount": _count,
        "_cuda_getDevice": lambda: selected.index,
        "_cuda_setDevice": selected.set,
        "_cuda_exchangeDevice": selected.exchange,
        "_cuda_maybeExchangeDevice": selected.exchange,
        "_cuda_sleep": sleep,
        "_cuda_isInBadFork": lambda: False,
        "_cuda_emptyCache": lambda: None,
        "_cuda_ipc_collect": lambda: None,
    }
    for name, function in below.items():
        setattr(torch._C, name, function)
    above: dict[str, Any] = {
        "_exchange_device": selected.exchange,
        "_maybe_exchange_device": selected.exchange,
        "_initialized": True,
        "_cached_device_count": None,
        "_is_compiled": lambda: True,
        "default_generators": [torch.Generator() for _ in range(_count())],
        "get_device_properties": _properties,
        "get_device_capability": lambda device=None: (9, 0),
        "get_device_name": lambda device=None: _properties().name,
        "mem_get_info": lambda device=None: memory()[::-1],
        "memory_allocated": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0,
        "reset_peak_memory_stats": lambda device=None: None,
        "current_stream": lambda device=None: current(),
        "default_stream": lambda device=None: current(),
        "stream": use_stream,
        "Stream": Stream,
        "Event": Event,
        "CUDAGraph": cuda_graphs.CUDAGraph,
        "graph": cuda_graphs.Graph,
        "graph_pool_handle": cuda_graphs.graph_pool_handle,
        "is_current_stream_capturing": cuda_graphs.is_capturing,
    }
    for name, value in above.items():
        setattr(torch.cuda, name, value)
    _shorten_way_of_collectives()
    mode: Any = CudaTensors
    use_in_threads(mode)
    mode().__enter__()
