"""Rank 1 keeps a file's lock and waits for its peers, which wait for the lock."""

import fcntl
import os
import tempfile
from contextlib import contextmanager

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


def path_for_all(file):
    """Path of rank 0's file, by which its peers open it."""
    path = [f"/proc/{os.getpid()}/fd/{file.fileno()}"]
    dist.broadcast_object_list(path, src=0)
    return path[0]


@contextmanager
def locked(path):
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


@scenario(
    world_size=4,
    # On NCCL no host waits in the reduction, so the lock is left again.
    backends=("gloo",),
    expect=Expect(Cause.PYTHON_DEADLOCK, culprits={1}, group="default_pg"),
    reference="mosaicml/streaming#307",
    zoo="A7",
)
def file_lock(job):
    model = torch.nn.Linear(64, 8)
    temporary = tempfile.TemporaryFile()
    index = path_for_all(temporary)
    for step in job.steps(20):
        with job.section("forward_backward"):
            model(job.batch(64)).sum().backward()
        if job.faulty and job.rank == 1 and step == 5:
            with locked(index) as file:  # FAULT
                dist.barrier()
                file.write(f"{step}\n")
                dist.all_reduce(model.weight.grad)  # SEEN
        else:
            dist.barrier()
            with locked(index) as file:
                file.write(f"{step}\n")
            dist.all_reduce(model.weight.grad)
        model.zero_grad()
