"""Rank 1 fails, and all ranks form their group anew and go on from the last step."""

import os

import torch
import torch.distributed as dist

from hanglab.harness import Expect, scenario


class LostBatchError(RuntimeError):
    pass


def train_step(job, model, fails):
    if fails:
        raise LostBatchError("a batch could not be read")
    model(job.batch(64)).square().mean().backward()


def keys_of(attempt):
    """A part of the store of its own for each attempt."""
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    return dist.PrefixStore(f"attempt/{attempt}", store)


@scenario(
    world_size=4,
    expect=Expect.healthy(),
    reference="pytorch/pytorch#123678",
    packs="training",
)
def restarted_in_process(job):
    place = {"rank": job.rank, "world_size": job.world_size}
    dist.init_process_group(job.backend, store=keys_of(1), **place)
    model = torch.nn.Linear(64, 8).to(job.device)
    for step in job.steps(20):
        failed = torch.zeros(1, device=job.device)
        try:
            train_step(job, model, fails=job.rank == 1 and step == 8)
        except LostBatchError:
            failed += 1
        dist.all_reduce(failed)
        if failed.item():
            dist.destroy_process_group()
            dist.init_process_group(job.backend, store=keys_of(2), **place)
            train_step(job, model, fails=False)
        dist.all_reduce(model.weight.grad)
        model.zero_grad()
    dist.destroy_process_group()
