"""Values that the faults of mutants strike with, and what a rank waits for in vain.

Mutants import it from their own folder; it needs nothing of hanglab, and torch only where a
function says so.
"""

# hanglab: no branches
from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

#: Called on the line of the fault, so that it is the innermost of the user's own.
now = time.perf_counter
sleep = time.sleep
read = os.read

#: Seconds that the fault took, and when it began to and when it had; see harness/mutation/pace.py.
_COST = struct.Struct("=ddd")
_costs: list[mmap.mmap] = []
#: Ends of pipes that nobody writes to, which stay open.
_kept: list[int] = []


def another_rank(rank: int, group: Any = None) -> int:
    """A member of the group other than that one.  Needs torch."""
    import torch.distributed as dist

    members = dist.get_process_group_ranks(group if group is not None else dist.group.WORLD)
    return members[(members.index(rank) + 1) % len(members)]


def another_peer(peer: int, group: Any = None) -> int:
    """A member of the group other than that one and the caller itself.  Needs torch."""
    other = another_rank(peer, group)
    return another_rank(other, group) if other == int(os.environ["RANK"]) else other


def another_dtype(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with elements of another size.  Needs torch."""
    import torch

    if tensor.is_floating_point():
        return tensor.to(torch.float32 if tensor.dtype is torch.float64 else torch.float64)
    return tensor.to(torch.int32 if tensor.dtype is torch.int64 else torch.int64)


def another_size(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, flat and with an element more.  Needs torch."""
    import torch

    flat = tensor.detach().flatten()
    return torch.cat([flat, flat[:1] if len(flat) else flat.new_zeros(1)])


def another_group(group: Any = None) -> Any:
    """Another process group of which the caller is a member too.  Needs torch."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    given = group if group is not None else dist.group.WORLD
    others = [one for one in distributed_c10d._world.pg_map if one is not given and one.size() > 1]
    # The largest: its members meet what the caller leaves out the soonest.
    return max(others, key=lambda one: one.size(), default=given)


def other_splits(splits: list[int]) -> list[int]:
    """The sizes with one element moved from the largest to the next."""
    moved = list(splits)
    largest = moved.index(max(moved))
    moved[largest] -= 1
    moved[(largest + 1) % len(moved)] += 1
    return moved


def without_last(ranks: Iterable[int]) -> list[int]:
    return list(ranks)[:-1]


def held_lock() -> threading.Lock:
    """A lock that somebody else has."""
    lock = threading.Lock()
    holder = threading.Thread(target=lock.acquire, daemon=True)
    holder.start()
    holder.join()
    return lock


def gil_keeper() -> Callable[[int], int]:
    """C's ``sleep``, called with the interpreter's lock held."""
    sleep: Callable[[int], int] = ctypes.PyDLL(None).sleep
    return sleep


def silent_pipe() -> int:
    """A descriptor that never has anything to read."""
    reading, writing = os.pipe()
    _kept.append(writing)
    return reading


def barrier() -> object:
    """A barrier of all ranks that is entered on the calling line; nothing before there is a group.

    Needs torch.
    """
    import torch.distributed as dist

    return dist.barrier if dist.is_initialized() else (lambda: None)


def end_of_slowness(began: float, share: float) -> float:
    """Time at which what began at ``began`` will have lasted longer by that share."""
    end = now()
    return end + cost((end - began) * share)


def cost(seconds: float) -> float:
    """The seconds, which the fault is about to take, kept where the harness finds them.

    In mapped memory: neither a thread nor a system call.
    """
    if not _costs:
        folder = os.environ.get("HANGLAB_MUTATION_TRUTH")
        if not folder:
            return seconds
        stem = os.path.splitext(os.path.basename(sys.argv[0]))[0]
        with open(os.path.join(folder, f"{stem}.{os.environ['RANK']}.cost"), "w+b") as file:
            file.truncate(mmap.PAGESIZE)
            _costs.append(mmap.mmap(file.fileno(), mmap.PAGESIZE))
        _COST.pack_into(_costs[0], 0, 0.0, now(), 0.0)
    total, first, _ = _COST.unpack_from(_costs[0])
    _COST.pack_into(_costs[0], 0, total + seconds, first, now() + seconds)
    return seconds


class Swallowing:
    """A block whose exceptions are told and swallowed."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        traceback.print_exception(error)
        return True
