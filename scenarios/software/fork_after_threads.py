"""Rank 1 forks a process that computes with torch, whose threads stayed behind in rank 1."""

import multiprocessing

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, scenario


def normalise(images, threads):
    """Brings each image to mean 0 and deviation 1, in a process of its own."""
    torch.set_num_threads(threads)
    deviation, mean = torch.std_mean(images, dim=(1, 2), keepdim=True)
    images.sub_(mean).div_(deviation)


@scenario(
    world_size=4,
    expect=Expect(Cause.FORK_DEADLOCK, culprits={1}, group="default_pg"),
    reference="pytorch/pytorch#17199",
    zoo="D15",
)
def fork_after_threads(job):
    forking = multiprocessing.get_context("fork")
    torch.set_num_threads(2)
    images = torch.rand(64, 128, 128).share_memory_()
    model = DistributedDataParallel(torch.nn.Linear(64, 8).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps(8):
        with job.section("forward_backward"):
            torch.std_mean(images, dim=(1, 2))
            model(job.batch(64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        threads = 2 if job.faulty and job.rank == 1 and step == 5 else 1  # FAULT
        worker = forking.Process(target=normalise, args=(images, threads))
        worker.start()
        worker.join()  # SEEN
