"""Rank 1 keeps a large cache of small objects, and Python searches all of it for garbage."""

import gc

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, scenario


class Record:
    """One row of a cache that is kept as Python objects."""

    def __init__(self, number):
        self.number = number
        self.next = {"number": number}


@scenario(
    world_size=4,
    expect=Expect(Cause.GC_PAUSE, culprits={1}, location=None),
    reference="pytorch/torchtitan#148",
    zoo="F1",
)
def gc_pause(job):
    cache = [Record(number) for number in range(120_000)]
    if not (job.faulty and job.rank == 1):  # FAULT
        gc.freeze()  # what is there is never searched again
    layers = [torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 32)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps(60):
        inputs = job.batch(128, rows=256)
        with job.section("forward_backward"):
            model(inputs).square().mean().backward()
        optimizer.step()
        job.synchronize()
        optimizer.zero_grad()
        if step % 2:
            gc.collect()
    assert len(cache) == 120_000
