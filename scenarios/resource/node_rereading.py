"""Rank 1's container has less memory than its dataset, which it reads again and again."""

import os
import tempfile

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, MemoryPressure, scenario

SIZE = 384 << 20


def unread(size):
    """A file of random bytes, of which nothing is in memory yet."""
    file = tempfile.TemporaryFile(buffering=0)
    block = os.urandom(1 << 20)
    for _ in range(size >> 20):
        file.write(block)
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return file


@scenario(
    world_size=2,
    expect=Expect(Cause.MEMORY_PRESSURE, culprits={1}, location=None),
    reference="pytorch/pytorch#13246",
    faults=[MemoryPressure(rank=1, mebibytes=448, at_step=0)],
    needs=("docker",),
    hang_after=5,
)
def node_rereading(job):
    samples = unread(SIZE)
    gradient = torch.zeros(1024)
    for _ in job.steps(8):
        samples.seek(0)
        while block := samples.read(1 << 20):
            gradient += block[0]
        dist.all_reduce(gradient)
