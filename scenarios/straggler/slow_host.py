"""Rank 1 is bound to one processor, which it shares with what somebody left running there."""

import multiprocessing
import os

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, scenario


def occupy(ready):
    """Computes for as long as it is let."""
    ready.release()
    total = 0
    while True:
        total += 1


@scenario(
    world_size=2,
    expect=Expect(Cause.SLOW_HOST, culprits={1}, location=None),
    reference="NVIDIA/nccl#1017",
    zoo="F5",
)
def slow_host(job):
    neighbours = []
    if job.faulty and job.rank == 1:  # FAULT
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        context = multiprocessing.get_context("fork")
        ready = context.Semaphore(0)
        for _ in range(3):
            neighbours.append(context.Process(target=occupy, args=(ready,), daemon=True))
            neighbours[-1].start()
            ready.acquire()
    layers = [torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in job.steps(60):
        inputs = job.batch(256, rows=512)
        with job.section("forward_backward"):
            model(inputs).square().mean().backward()
        optimizer.step()
        job.synchronize()
        optimizer.zero_grad()
    for neighbour in neighbours:
        neighbour.kill()
        neighbour.join()
