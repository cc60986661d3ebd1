"""Rank 0 keeps all its checkpoints instead of the last one, until the disk is full."""

from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, scenario


@scenario(
    world_size=4,
    expect=Expect(Cause.DISK_FULL, culprits={0}),
    reference="pytorch/pytorch#29097",
    needs=("private_mounts",),
)
def disk_full(job):
    folder = job.disk(mebibytes=4) if job.rank == 0 else Path()
    model = DistributedDataParallel(torch.nn.Linear(512, 512).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps(30):
        model(job.batch(512)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if job.rank == 0 and step % 5 == 0:
            torch.save(model.module.state_dict(), folder / f"{step}.pt")  # SEEN
            if not job.faulty and step:  # FAULT
                (folder / f"{step - 5}.pt").unlink()
