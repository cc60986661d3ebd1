"""A block split over the ranks with ``parallelize_module``: torchrun starts it, or it spawns.

The argument names what is odd in this run; without one nothing is.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils.data import DataLoader, TensorDataset

ODD = sys.argv[1] if len(sys.argv) > 1 else ""


class Block(torch.nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Network(torch.nn.Module):
    def __init__(self, blocks=2):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(blocks))

    def forward(self, x, drop_last=False):
        for i, block in enumerate(self.blocks):
            if drop_last and i == len(self.blocks) - 1:
                continue
            x = block(x)
        return x


def drops_a_layer(rank, step):
    # Layer drop whose coin each rank throws for itself.
    return ODD == "skip_module" and rank == 1 and step == 11


def finished(rank, step):
    return ODD == "leave_loop" and rank == 1 and step == 11


def smooth(a):
    return torch.tanh(a @ a / 16)


def sharpen(a):
    return a - a.mean(0) + torch.sin(a @ a.T / 16)


def compute_for(seconds):
    # Real work, in which nothing but the function changes.
    end = time.monotonic() + seconds
    a = torch.randn(256, 256)
    while time.monotonic() < end:
        for _ in range(40):
            a = smooth(a)
        for _ in range(40):
            a = sharpen(a) / 4


def long_step(step):
    if ODD == "long_step" and step == 9:
        compute_for(8)


def slow_rows(batch):
    if ODD == "slow_loader":
        time.sleep(0.4)
    return torch.stack([row for (row,) in batch])


def validate(model, rows):
    with torch.no_grad():
        if ODD == "long_validation":
            compute_for(8)
        return model(rows[:8]).square().mean()


def train(rank, world_size):
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (world_size,), mesh_dim_names=("tp",))
    model = Network()
    for block in model.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    rows = torch.randn(192, 32, generator=torch.Generator().manual_seed(1))
    loader = DataLoader(TensorDataset(rows), batch_size=8, collate_fn=slow_rows)
    for step, x in enumerate(loader):
        loss = model(x, drops_a_layer(rank, step)).square().mean()
        long_step(step)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if finished(rank, step):
            break
    loss = validate(model, rows)
    dist.barrier()  # SEEN skip_module, leave_loop
    if rank == 0:
        print(f"loss {loss:.3f}")


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    train(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()


def spawned(rank, world_size):
    os.environ["RANK"] = str(rank)
    os.environ["WORLD_SIZE"] = str(world_size)
    main()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main()
    else:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29513")
        mp.spawn(spawned, args=(2,), nprocs=2)
