"""Rank 2's shard has fewer batches: it leaves the epoch while its peers still reduce gradients."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from hanglab.harness import Cause, Expect, scenario


def report_epoch(store, rank, world_size, loss):
    """Publishes this rank's loss and waits for everybody's, by the store and not by a group."""
    store.set(f"loss/{rank}", str(loss))
    store.wait([f"loss/{peer}" for peer in range(world_size)])  # SEEN
    return sum(float(store.get(f"loss/{peer}")) for peer in range(world_size)) / world_size


@scenario(
    world_size=4,
    expect=Expect(Cause.UNEVEN_INPUTS, culprits={2}, group="default_pg"),
    reference="pytorch/pytorch#38174",
    zoo="A8",
    packs=("training", "data"),
)
def uneven_inputs(job):
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    model = DistributedDataParallel(torch.nn.Linear(64, 8).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = 6 if job.faulty and job.rank == 2 else 12  # FAULT
    shard = TensorDataset(torch.randn(batches * 16, 64))
    loader = DataLoader(shard, batch_size=16)
    total = 0.0
    for _, (batch,) in zip(job.steps(len(loader)), loader, strict=True):
        with job.section("forward_backward"):
            loss = model(batch.to(job.device)).square().mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.item()
    report_epoch(store, job.rank, job.world_size, total / len(loader))
