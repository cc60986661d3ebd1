"""The file server of rank 1's node stops answering, and the read never comes back."""

import torch
import torch.distributed as dist

from hanglab.harness import BlockDisk, Cause, Expect, scenario

BLOCK = 1 << 16


@scenario(
    world_size=2,
    expect=Expect(Cause.IO_BLOCKED, culprits={1}),
    reference="nfs-ganesha/nfs-ganesha#1327",
    zoo="B10",
    faults=[BlockDisk(rank=1, at="/storage", mebibytes=64, at_step=10)],
    needs=("docker", "outside_storage"),
    hang_after=3,
)
def file_server_gone(job):
    gradient = torch.ones(1024)
    with open("/storage/data", "rb", buffering=0) as shard:
        for step in job.steps(1000 if job.faulty else 40):
            shard.seek(step * BLOCK)
            gradient.fill_(sum(shard.read(BLOCK)))  # SEEN
            dist.all_reduce(gradient)
