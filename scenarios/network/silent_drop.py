"""Nodes of ranks 1 and 2 lose all that goes between them; rank 0 talks with both."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, DropBetween, Expect, scenario


@scenario(
    world_size=3,
    expect=Expect(Cause.PARTITION, culprits={1, 2}, location=None),
    reference="measured by hand; no public thread",
    zoo="C3",
    faults=[DropBetween(rank=1, other=2, at_step=10)],
    needs=("docker", "outside_filter"),
    hang_after=3,
)
def silent_drop(job):
    activations = torch.ones(1 << 16)
    for _ in job.steps(5000 if job.faulty else 100):
        dist.all_reduce(activations)
        activations.div_(job.world_size)
