"""Rank 1's node stands still as a whole, the recorder on it included, as a paused machine does."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, FreezeNode, scenario


@scenario(
    world_size=3,
    expect=Expect(Cause.PROCESS_FROZEN, culprits={1}, location=None),
    reference="measured by hand; no public thread",
    zoo="F8",
    faults=[FreezeNode(rank=1, at_step=10)],
    needs=("docker",),
    hang_after=3,
)
def node_paused(job):
    gradient = torch.ones(1 << 12)
    for _ in job.steps(5000 if job.faulty else 100):
        dist.all_reduce(gradient)
        gradient.div_(job.world_size)
