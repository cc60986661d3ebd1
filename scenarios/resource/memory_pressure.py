"""Rank 2 reads its dataset again and again through a memory limit that does not hold it."""

import os
import tempfile

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, LimitMemory, scenario

SIZE = 256 << 20


def unread(size):
    """A file of random bytes, of which nothing is in memory yet."""
    file = tempfile.TemporaryFile(buffering=0)
    file.write(os.urandom(1 << 20) * (size >> 20))
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return file


@scenario(
    world_size=4,
    expect=Expect(Cause.MEMORY_PRESSURE, culprits={2}, location=None),
    reference="pytorch/pytorch#13246",
    faults=[LimitMemory(rank=2, mebibytes=192, at_step=0)],
    needs=("cgroup_memory",),
)
def memory_pressure(job):
    samples = unread(SIZE)
    gradient = torch.zeros(1024)
    for _ in job.steps(16):
        samples.seek(0)
        while block := samples.read(1 << 20):
            gradient += block[0]
        dist.all_reduce(gradient)
        job.synchronize()
