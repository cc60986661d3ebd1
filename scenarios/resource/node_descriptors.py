"""Rank 1 opens a shard a step and closes none, on a node whose limit of open files is drawn in."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, NodeDescriptors, scenario


@scenario(
    world_size=2,
    expect=Expect(Cause.FD_EXHAUSTED, culprits={1}),
    reference="pytorch/pytorch#11201",
    zoo="B4",
    faults=[NodeDescriptors(rank=1, spare=16, at_step=5)],
    needs=("docker", "outside_processes"),
)
def node_descriptors(job):
    shards = []
    gradient = torch.ones(64)
    for _ in job.steps(5000 if job.faulty else 40):
        shard = open(__file__, "rb")  # SEEN
        gradient.fill_(len(shard.read(64)))
        if job.rank == 1:
            shards.append(shard)
        else:
            shard.close()
        dist.all_reduce(gradient)
