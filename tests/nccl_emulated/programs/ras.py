"""Ranks whose communicator differs by rank in what RAS tells, and that ask it."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.dirname(__file__))
from behaviours import connect
from forked_ranks import Rank, comes


def answers(rank: Rank) -> None:
    """Rank 0 asks when rank 1 has aborted, rank 2's device has failed and rank 3 has left."""
    from hanglab.harness.nccl_emulated.control import Order, give_order
    from hanglab.recorder.agent.host import nccl_ras

    rank.join()
    connect()
    tensor = torch.ones(4)
    for _ in range(3):
        dist.all_reduce(tensor)
    dist.broadcast(tensor, 0)
    tensor.tolist()
    dist.barrier()
    if rank.number == 1:
        dist.group.WORLD.abort()
    elif rank.number == 2:
        give_order(os.getpid(), Order.FAIL, 0.0, "CUDA error: an illegal memory access")
        comes(dist.all_reduce(tensor, async_op=True).is_completed, 30.0)
    elif rank.number == 3:
        dist.group.WORLD.shutdown()
    rank.signal(f"done {rank.number}")
    for number in range(rank.size):
        rank.wait_for(f"done {number}")
    if rank.number == 0:
        document: dict[str, Any] = {}

        def is_told() -> bool:
            # Whoever has left answers, too, and has nothing to tell.
            document.update(nccl_ras.ask(*nccl_ras.address_of(dict(os.environ))))
            return bool(document["communicators"])

        comes(is_told, 30.0)
        rank.tell(document=document)
