"""Somebody else fills the disk on which rank 0 keeps its latest checkpoint."""

import os

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, FillDisk, scenario


@scenario(
    world_size=2,
    expect=Expect(Cause.DISK_FULL, culprits={0}),
    reference="pytorch/pytorch#29097",
    faults=[FillDisk(rank=0, at="/scratch", mebibytes=32, at_step=10)],
    needs=("docker", "outside_processes"),
)
def neighbour_fills_disk(job):
    model = DistributedDataParallel(torch.nn.Linear(512, 512))
    for _ in job.steps(5000 if job.faulty else 40):
        model(job.batch(512)).square().mean().backward()
        model.zero_grad()
        if job.rank == 0:
            torch.save(model.module.state_dict(), "/scratch/new.pt")  # SEEN
            os.replace("/scratch/new.pt", "/scratch/latest.pt")
