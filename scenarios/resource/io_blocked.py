"""The file server that rank 1 reads its shards from goes away, and the read never comes back."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario

BLOCK = 1 << 18


@scenario(
    world_size=4,
    expect=Expect(Cause.IO_BLOCKED, culprits={1}),
    reference="nfs-ganesha/nfs-ganesha#1327",
    zoo="B10",
    needs=("private_storage",),
)
def io_blocked(job):
    storage = job.storage(64 * BLOCK)
    gradient = torch.ones(1024)
    with open(storage.file, "rb", buffering=0) as shard:
        for step in job.steps(40):
            if job.faulty and job.rank == 1 and step == 10:  # FAULT
                storage.go_away()
            shard.seek(step * BLOCK)
            gradient.fill_(sum(shard.read(BLOCK)))  # SEEN
            dist.all_reduce(gradient)
