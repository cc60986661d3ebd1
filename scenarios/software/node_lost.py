"""Rank 1's node is gone from one moment to the next, the recorder on it included."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, KillNode, scenario


@scenario(
    world_size=3,
    expect=Expect(Cause.CRASH, culprits={1}, location=None),
    reference="measured by hand; no public thread",
    faults=[KillNode(rank=1, at_step=10)],
    needs=("docker",),
)
def node_lost(job):
    gradient = torch.ones(1 << 12)
    for _ in job.steps(5000 if job.faulty else 100):
        dist.all_reduce(gradient)
        gradient.div_(job.world_size)
