"""Rank 1 copies its part of the checkpoint to a storage that takes its time; its peers wait."""

import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, scenario

BLOCK = 1 << 16


def copy(source, storage, seconds):
    """Copies a file to a storage that takes ``seconds`` for each block."""
    while block := source.read(BLOCK):  # SEEN
        storage.write(block)  # SEEN
        storage.flush()  # SEEN
        os.fsync(storage.fileno())  # SEEN
        time.sleep(seconds)  # SEEN


@scenario(
    world_size=4,
    expect=Expect(Cause.RANK0_WORK, culprits={1}),
    hang_after=1.0,
    reference="ByteDance-Seed/VeOmni#1176",
    zoo="B11",
    packs="checkpoint",
)
def slow_checkpoint_copy(job):
    layers = [torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(job.device))
    seconds = 0.03 if job.faulty and job.rank == 1 else 0.0  # FAULT
    for step in job.steps(10):
        with job.section("forward_backward"):
            model(job.batch(1024)).square().mean().backward()
        model.zero_grad()
        if step == 5:
            with tempfile.TemporaryFile() as staged, tempfile.TemporaryFile() as storage:
                torch.save(model.module.state_dict(), staged)
                staged.seek(0)
                copy(staged, storage, seconds)
            dist.barrier()
