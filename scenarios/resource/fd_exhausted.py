"""Rank 1 opens the shards of its dataset and never closes them."""

import os
import resource

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


@scenario(
    world_size=4,
    expect=Expect(Cause.FD_EXHAUSTED, culprits={1}),
    reference="pytorch/pytorch#11201",
    zoo="B4",
)
def fd_exhausted(job):
    used = len(os.listdir("/proc/self/fd"))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 40, hard))
    shards = []
    gradient = torch.ones(64)
    for _ in job.steps(60):
        shard = open(__file__, "rb")  # SEEN
        gradient.fill_(len(shard.read(64)))
        if job.faulty and job.rank == 1:  # FAULT
            shards.append(shard)
        else:
            shard.close()
        dist.all_reduce(gradient)
