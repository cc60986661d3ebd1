"""Rank 2 reads a mapped dataset through a memory limit that holds only half of it."""

import mmap
import os
import tempfile

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, LimitMemory, scenario

SIZE = 96 << 20


def mapped(size):
    """A file of random bytes, mapped, of which nothing is in memory yet."""
    with tempfile.TemporaryFile() as file:
        file.write(os.urandom(1 << 20) * (size >> 20))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)


@scenario(
    world_size=4,
    expect=Expect(Cause.MEMORY_PRESSURE, culprits={2}, location=None),
    reference="pytorch/pytorch#13246",
    faults=[LimitMemory(rank=2, mebibytes=48, at_step=3)],
    needs=("cgroup_memory",),
)
def memory_pressure(job):
    samples = mapped(SIZE)
    gradient = torch.zeros(1024)
    for _ in job.steps(40):
        gradient.fill_(sum(samples[:: mmap.PAGESIZE]) / SIZE)
        dist.all_reduce(gradient)
