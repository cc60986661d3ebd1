"""Packets that rank 1's node sends get lost, while it still hears the others."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, CutOff, Expect, scenario


@scenario(
    world_size=3,
    expect=Expect(Cause.PARTITION, culprits={1}, location=None),
    reference="measured by hand; no public thread",
    zoo="C3",
    faults=[CutOff(rank=1, ways="out", at_step=10)],
    needs=("docker", "outside_filter"),
    hang_after=3,
)
def node_mute(job):
    loss = torch.ones(1 << 12)
    losses = [torch.empty_like(loss) for _ in range(job.world_size)] if job.rank == 1 else None
    for _ in job.steps(5000 if job.faulty else 100):
        dist.gather(loss, losses, dst=1)
