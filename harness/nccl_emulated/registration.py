"""Making the backend known to torch, under the names that scripts use."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.constants import default_pg_timeout

from hanglab.harness.nccl_emulated.dumps import replace_torchs_own
from hanglab.harness.nccl_emulated.names import NAME, as_torch_has_it
from hanglab.harness.nccl_emulated.process_group import EmulatedGroup
from hanglab.harness.nccl_emulated.settings import EmulationError

#: ``kProcessGroupNCCLDefaultTimeout``
_NCCL_TIMEOUT = timedelta(minutes=10)


def register() -> None:
    """Let ``init_process_group("nccl_emulated")`` and its like work.  Twice is once."""
    if NAME.upper() in dist.Backend._plugins:
        return
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
    replace_torchs_own()
    _replace("batch_isend_irecv", _batched)
    _replace("init_process_group", _by_name)
    _replace("new_group", _by_name)


class Binding:
    """Binding of the default group to a device, as it was initialised."""

    bound = False


def _create(options: Any, _: object) -> EmulatedGroup:
    timeout: timedelta = options.timeout
    if timeout == default_pg_timeout:
        # What torch takes where nothing is said, of all backends but NCCL.
        timeout = _NCCL_TIMEOUT
    members = list(options.global_ranks_in_group)
    rank, size = options.group_rank, options.group_size
    if c10d.is_initialized():
        global_rank = dist.get_rank()
    else:
        global_rank = rank
    return EmulatedGroup(
        options.store, _root_store(options.store), rank, size, timeout, global_rank, members,
        eager=Binding.bound, parent=_parent() if Binding.bound else None,
    )  # fmt: skip


def _parent() -> EmulatedGroup | None:
    """Group that one of a bound job is split off: the default group, where it is there."""
    if not c10d.is_initialized():
        return None
    default = c10d._get_default_group()
    return default if isinstance(default, EmulatedGroup) else None


def _root_store(store: Any) -> Any:
    """The job's own store, below all prefixes."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return store


def _replace(name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    wrapped = wrap(getattr(c10d, name))
    setattr(c10d, name, wrapped)
    setattr(dist, name, wrapped)


def place_of_backend(function: Callable[..., Any]) -> int:
    """Place of the argument ``backend`` among those of a function of torch.distributed."""
    return 0 if function.__name__ == "init_process_group" else 2


def _by_name(original: Callable[..., Any]) -> Callable[..., Any]:
    place = place_of_backend(original)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > place:
            args = (*args[:place], as_torch_has_it(args[place]), *args[place + 1 :])
        elif "backend" in kwargs:
            kwargs["backend"] = as_torch_has_it(kwargs["backend"])
        return original(*args, **kwargs)

    return call


def _batched(original: Callable[..., Any]) -> Callable[..., Any]:
    """torch coalesces for groups of C++ alone: ``type(group) is ProcessGroup``."""

    @functools.wraps(original)
    def batch_isend_irecv(p2p_op_list: list[Any]) -> list[Any]:
        c10d._check_p2p_op_list(p2p_op_list)
        group = p2p_op_list[0].group or c10d._get_default_group()
        if not isinstance(group, EmulatedGroup):
            result: list[Any] = original(p2p_op_list)
            return result
        device = p2p_op_list[0].tensor.device
        with c10d._coalescing_manager(group, device, async_ops=True) as manager:
            for one in p2p_op_list:
                side = "group_dst" if one.op in (dist.isend, c10d.isend) else "group_src"
                one.op(one.tensor, group=one.group, tag=one.tag, **{side: one.group_peer})
        works: list[Any] = manager.works
        return works

    return batch_isend_irecv


def check_torch() -> None:
    """Raises EmulationError where torch has no gloo: its stores and groups are built with it."""
    if not torch.distributed.is_available() or not dist.is_gloo_available():
        raise EmulationError(
            "This torch has no gloo, which the emulated backend needs.",
            "Install torch from PyPI or from its CPU index.",
        )
