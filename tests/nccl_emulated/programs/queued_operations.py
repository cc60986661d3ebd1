"""Many operations of one communicator, which the device takes several at once."""

from __future__ import annotations

import os
import sys
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.dirname(__file__))
from behaviours import SILENCE_S, connect, patience
from forked_ranks import PATIENCE_S, Rank, comes


def of_all_kinds(rank: Rank) -> None:
    """700 operations are launched before rank 1 launches its first; all numbers must be right."""
    rank.join()
    connect()
    if rank.number == 1:
        rank.wait_for("launched")
    dtypes = [torch.float32, torch.int64, torch.bfloat16]
    shapes = [(8,), (2, 4), (), (0,), (300, 2), (3000,)]  # beside the calls, and in slots
    wanted, tensors = [], []
    for number in range(700):
        shape, dtype = shapes[number // 7 % len(shapes)], dtypes[number // 11 % len(dtypes)]
        tensor = torch.full(shape, rank.number + number % 3, dtype=dtype)
        kind = number % 5
        if kind == 3:
            out = torch.empty((rank.size, *shape), dtype=dtype)
            dist.all_gather_single(out.view(-1), tensor.view(-1), async_op=True)
            tensors.append(out)
            wanted.append([other + number % 3 for other in range(rank.size)])
        elif kind == 4:
            dist.all_reduce(tensor, dist.ReduceOp.MAX, async_op=True)
            tensors.append(tensor)
            wanted.append(rank.size - 1 + number % 3)
        else:
            dist.all_reduce(tensor, async_op=True)
            tensors.append(tensor)
            wanted.append(sum(other + number % 3 for other in range(rank.size)))
    if rank.number == 0:
        rank.signal("launched")
    dist.barrier()
    wrong = [
        number
        for number, (tensor, value) in enumerate(zip(tensors, wanted, strict=True))
        if tensor.tolist() != _filled(tensor, value).tolist()
    ]
    rank.tell(wrong=wrong)
    dist.destroy_process_group()


def _filled(tensor: torch.Tensor, value: object) -> torch.Tensor:
    like = torch.empty_like(tensor)
    for place, one in enumerate(value) if isinstance(value, list) else ():
        like[place] = one
    return like if isinstance(value, list) else like.fill_(value)


def same_memory(rank: Rank) -> None:
    """Each operation needs what the one before it has left in the same tensor."""
    rank.join()
    connect()
    tensor = torch.ones(4)
    for _ in range(20):
        dist.all_reduce(tensor, async_op=True)
    rank.tell(value=tensor.tolist()[0])


def mismatch_inside(rank: Rank) -> None:
    """The 21st of 40 operations has another size on rank 1."""
    rank.join()
    connect()
    if rank.number == 1:
        rank.wait_for("launched")
    works = []
    for number in range(40):
        tensor = torch.ones(9 if number == 20 and rank.number == 1 else 8)
        works.append(dist.all_reduce(tensor, async_op=True))
    rank.signal("launched")
    assert comes(works[19].is_completed, PATIENCE_S)
    rank.tell(more=comes(works[20].is_completed, SILENCE_S))
    rank.tell(
        completed=[work.is_completed() for work in works].count(True),
        started=[work.operation.started_ns != 0 for work in works].count(True),
        order=all(
            first.operation.completed_ns <= second.operation.completed_ns
            for first, second in pairwise(works[:20])
        ),
    )


def slot_in_launch_order(rank: Rank) -> None:
    """One slot and two communicators: a later launch of the first must leave the slot alone.

    Rank 0 launches A, B, A; rank 1 launches A, A, B.  After the first A, rank 0's slot belongs to
    B, and rank 1's to A.
    """
    rank.join()
    first, second = [dist.new_group([0, 1]) for _ in range(2)]
    connect(first)
    connect(second)
    groups = [first, second, first] if rank.number == 0 else [first, first, second]
    if rank.number == 1:
        rank.wait_for("launched")
    works = [dist.all_reduce(torch.ones(2), group=group, async_op=True) for group in groups]
    if rank.number == 0:
        rank.signal("launched")
    assert comes(works[0].is_completed, PATIENCE_S)
    rank.tell(done=comes(lambda: all(work.is_completed() for work in works), patience()))


def halted_behind_published(rank: Rank) -> None:
    """Rank 0's device stops when it has handed over ten operations, before rank 1 launches any."""
    from hanglab.harness.nccl_emulated.control import Order, give_order

    rank.join()
    connect()
    if rank.number == 1:
        rank.wait_for("halted")
    works = [dist.all_reduce(torch.ones(2), async_op=True) for _ in range(10)]
    if rank.number == 0:
        rounds = dist.group.WORLD._launches.communicator().rounds
        assert comes(lambda: rounds.open == 10, PATIENCE_S)
        give_order(os.getpid(), Order.HALT)
        rank.signal("halted")
    works += [dist.all_reduce(torch.ones(2), async_op=True) for _ in range(10)]
    assert comes(works[9].is_completed, PATIENCE_S)
    comes(works[10].is_completed, SILENCE_S)
    rank.tell(completed=[work.is_completed() for work in works].count(True))
    rank.signal(f"told{rank.number}")
    rank.wait_for(f"told{1 - rank.number}")
    os._exit(0)


def waits_and_failures(rank: Rank) -> None:
    """Rank 1 is late for the first of five; the third of rank 0 cannot be handed over at all."""
    from hanglab.harness.nccl_emulated import kernels

    rank.join()
    connect()
    if rank.number == 1:
        rank.wait_for("launched")
    works, whole = [], kernels.all_reduce

    def broken(*args: Any) -> Any:
        kernel: Any = whole(*args)
        kernel.source, kernel.alike = lambda: 1 // 0, None
        return kernel

    for number in range(5):
        kernels.all_reduce = broken if (rank.number, number) == (0, 2) else whole
        works.append(dist.all_reduce(torch.ones(4), async_op=True))
    if rank.number == 0:
        comes(lambda: False, SILENCE_S)
        rank.signal("launched")
    assert comes(lambda: works[1].operation.done, PATIENCE_S)
    comes(lambda: works[2].operation.done, PATIENCE_S if rank.number == 0 else SILENCE_S)
    first, second = works[0].operation, works[1].operation
    rank.tell(
        waited_ms=(first.completed_ns - first.started_ns) / 1e6,
        next_began=second.started_ns >= first.completed_ns,
        error=type(works[2].operation.error).__name__,
    )
    rank.signal(f"told{rank.number}")
    rank.wait_for(f"told{1 - rank.number}")
    os._exit(0)
