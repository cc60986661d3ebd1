"""Steps that are captured once and replayed, by ``torch.cuda.graph``."""

from __future__ import annotations

import os
import pickle
import sys
import threading

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist

sys.path.insert(0, os.path.dirname(__file__))
from behaviours import SILENCE_S
from forked_ranks import Rank, comes
from splits import bound


def _entries() -> list[dict]:
    return pickle.loads(c10d._dump_fr_trace(True, False, False))["entries"]


def _captured(rank: Rank) -> tuple[torch.cuda.CUDAGraph, torch.Tensor, torch.Tensor]:
    """A graph that adds up the members' inputs, twice over, into a total."""
    source, total = torch.full((4,), rank.number + 1.0), torch.zeros(4)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        doubled = source * 2
        dist.all_reduce(doubled)
        total.add_(doubled)
    return graph, source, total


def replays(rank: Rank) -> None:
    bound(rank)
    warm = torch.ones(1)
    dist.all_reduce(warm)
    warm.item()
    graph, source, total = _captured(rank)
    rank.tell(captured=total.tolist(), entries=len(_entries()))
    for _ in range(3):
        graph.replay()
    rank.tell(three=total.tolist())
    source.fill_(10.0)
    graph.replay()
    torch.cuda.synchronize()
    rank.tell(four=total.tolist(), entries_after=len(_entries()))
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            total.sum().item()
    except RuntimeError as error:
        rank.tell(error=str(error))
    rank.tell(capturing=torch.cuda.is_current_stream_capturing())
    dist.destroy_process_group()


def counts_differ(rank: Rank) -> None:
    """Rank 1 replays once less than rank 0."""
    bound(rank)
    warm = torch.ones(1)
    dist.all_reduce(warm)
    warm.item()
    graph, _, total = _captured(rank)
    before = len(_entries())
    for _ in range(3 - rank.number):
        graph.replay()
    waits = threading.Thread(target=torch.cuda.synchronize, daemon=True)
    waits.start()
    rank.tell(blocked=not comes(lambda: not waits.is_alive(), SILENCE_S * 2))
    rank.tell(new_entries=len(_entries()) - before)
    if rank.number == 1:
        rank.tell(total=total.tolist())
    rank.signal(f"told{rank.number}")
    rank.wait_for(f"told{1 - rank.number}")
    os._exit(0)
