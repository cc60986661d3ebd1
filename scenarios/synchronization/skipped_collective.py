"""Rank 1 leaves one of the step's operations out: its next one meets the wrong one of its peers."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


@scenario(
    world_size=4,
    expect=Expect(Cause.SKIPPED_COLLECTIVE, culprits={1}, group="default_pg"),
    reference="pytorch/pytorch#77562",
    zoo="E1",
)
def skipped_collective(job):
    model = torch.nn.Linear(64, 8).to(job.device)
    for step in job.steps(20):
        with job.section("forward_backward"):
            model(job.batch(64)).sum().backward()
        if not (job.faulty and job.rank == 1 and step == 5):  # FAULT
            dist.all_reduce(model.weight.grad)
        dist.broadcast(torch.zeros(1, device=job.device), src=0)  # SEEN
        model.zero_grad()
