"""Rank 3 finds nothing to do and leaves before it has joined; the others wait for it."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario

SHARDS = 3


@scenario(
    world_size=4,
    # The emulated backend meets its peers later, at the first operation.
    backends=("gloo", "nccl"),
    expect=Expect(Cause.RENDEZVOUS, culprits={3}, location=None),
    reference="ray-project/ray#42683",
    zoo="B13",
)
def rendezvous_missing_rank(job):
    shards = SHARDS if job.faulty else job.world_size  # FAULT
    if job.rank >= shards:
        return
    dist.init_process_group(job.backend)
    total = torch.ones(1, device=job.device)
    for _ in job.steps(10):
        dist.all_reduce(total)
    dist.destroy_process_group()
