"""Ranks of which one has a batch more than its peers, or one call more.

    hanglab run uneven_inputs_program.py -- KIND ODD

KIND: ``loader`` (DistributedDataParallel over a DataLoader, and nothing behind it), ``epochs`` (the
same with a reduction behind each epoch, which gloo refuses), ``shards`` (rank ODD has a batch
fewer, and a reduction is behind them), ``sampled`` (a loop over sizes of batches, one of which ODD
splits), ``later_epoch`` (ODD has a batch fewer in the first of two epochs, and comes to the second:
gloo lets the reduction behind the first meet that of so small a model), ``counted`` (a loop over
its own number of items), ``iterator`` (rank ODD handles the end of it sooner).  Those are uneven;
``extra_call`` and ``goes_on`` have as many rounds on all ranks, of which ODD makes one call too
many, or does not break off.  With ODD -1 nothing is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

KIND, ODD = sys.argv[1], int(sys.argv[2])
ITEMS = 10


def train(model: DistributedDataParallel, optimizer: torch.optim.Optimizer, items: int) -> None:
    for (batch,) in DataLoader(TensorDataset(torch.randn(items * 4, 8)), batch_size=4):
        optimizer.zero_grad()
        loss = model(batch).sum()
        loss.backward()
        optimizer.step()


def broadcast_paths() -> None:
    """Calls before any of the model's, whose lines the boundary knows."""
    dist.broadcast_object_list(["/data"], src=0)


def shard(odd: bool) -> Iterator[int]:
    """Batches of equal sizes, of which the odd rank has one fewer."""
    for _ in range(ITEMS - odd):
        yield 4


def sampled(odd: bool) -> Iterator[int]:
    """Sizes of batches, of which the odd rank has a split one."""
    for at in range(ITEMS):
        if odd and at == ITEMS - 1:
            yield 2
            yield 2
        else:
            yield 4


def main() -> None:
    dist.init_process_group("gloo")
    odd = dist.get_rank() == ODD
    items = ITEMS + odd
    if KIND in ("loader", "epochs"):
        model = DistributedDataParallel(torch.nn.Linear(8, 8))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(2):
            train(model, optimizer, items)
            if KIND == "epochs":
                dist.all_reduce(torch.zeros(1))
    elif KIND in ("shards", "sampled"):
        broadcast_paths()
        model = DistributedDataParallel(torch.nn.Linear(8, 8))
        for size in shard(odd) if KIND == "shards" else sampled(odd):
            model(torch.randn(size, 8)).sum().backward()
        if KIND == "shards":
            dist.all_reduce(torch.zeros(1))
        else:
            mine = torch.zeros(72)  # as many as the model has
            dist.all_gather([torch.empty_like(mine) for _ in range(dist.get_world_size())], mine)
    elif KIND == "later_epoch":
        model = DistributedDataParallel(torch.nn.Linear(2, 1))
        data = TensorDataset(torch.randn(ITEMS - odd, 2))
        for _ in range(2):
            for (batch,) in DataLoader(data):
                model(batch).sum().backward()
            dist.all_reduce(torch.zeros(1))
    elif KIND == "counted":
        for _ in range(items):
            dist.all_reduce(torch.ones(8))
        dist.barrier()
    elif KIND == "iterator":
        data = iter(range(ITEMS - odd))
        while True:
            try:
                next(data)
                dist.all_reduce(torch.ones(8))
            except StopIteration:
                dist.barrier()
                break
    elif KIND == "extra_call":
        for step in range(10):
            dist.all_reduce(torch.ones(8))
            if step == 9 and odd:
                dist.all_reduce(torch.ones(8))
        dist.barrier()
    elif KIND == "goes_on":
        for step in range(100):
            dist.all_reduce(torch.ones(8))
            if step == ITEMS and not odd:
                break
            if step == ITEMS + 3:
                break
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
