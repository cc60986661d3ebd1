"""Trains a small seeded model on two ranks and prints every loss and all final weights, exactly.

Arguments: the store, and a file that it waits for in the middle, if there is one.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SIZE = 2


def say(*words):
    """One write, so that lines of two ranks do not mix."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def work(rank, store, gate):
    torch.set_num_threads(1)
    torch.manual_seed(7)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=SIZE)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    torch.manual_seed(100 + rank)
    for step in range(8):
        if step == 4 and gate:
            Path(gate + ".waits").touch()
            while not Path(gate).exists():
                time.sleep(0.02)
        x = torch.randn(32, 8)
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        say(rank, step, "loss", loss.item().hex(), total.item().hex())
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    say(rank, "weights", *(value.hex() for value in weights.tolist()))
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.start_processes(
        work,
        args=(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""),
        nprocs=SIZE,
        start_method="fork",
    )
