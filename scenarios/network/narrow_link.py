"""Rank 2 hands out its weights through a link of 8 Mbit a second; all others are far wider."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, LimitRate, scenario


@scenario(
    world_size=3,
    expect=Expect(Cause.SLOW_LINK, culprits={2}, location=None),
    reference="measured by hand; no public thread",
    zoo="C13",
    faults=[LimitRate(rank=2, mebibits=8)],
    needs=("docker", "outside_rate"),
    hang_after=5,
)
def narrow_link(job):
    weights = torch.zeros(1 << 16)
    for _ in job.steps(20):
        weights += job.batch(1 << 8, rows=1 << 8).flatten()
        dist.broadcast(weights, src=2)
