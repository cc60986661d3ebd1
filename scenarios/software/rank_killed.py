"""Somebody on the host kills the process of rank 2, whose node lives on."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, KillRank, scenario


@scenario(
    world_size=3,
    expect=Expect(Cause.CRASH, culprits={2}, location=None),
    reference="measured by hand; no public thread",
    faults=[KillRank(rank=2, at_step=10)],
    needs=("docker", "outside_processes"),
)
def rank_killed(job):
    gradient = torch.ones(1 << 12)
    for _ in job.steps(5000 if job.faulty else 100):
        dist.all_reduce(gradient)
        gradient.div_(job.world_size)
