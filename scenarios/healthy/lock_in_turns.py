"""Ranks unpack a shared file one after the other, each under its lock, and all get their turn."""

import fcntl
import os
import tempfile

import torch
import torch.distributed as dist

from hanglab.harness import Expect, scenario


def unpack(path):
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for _ in range(8):
            torch.linalg.qr(torch.randn(300, 300))


@scenario(world_size=4, expect=Expect.healthy(), reference="mosaicml/streaming#307", packs="data")
def lock_in_turns(job):
    folder = [tempfile.mkdtemp() if job.rank == 0 else ""]
    dist.broadcast_object_list(folder, src=0, device=job.device)
    path = os.path.join(folder[0], "lock")
    model = torch.nn.Linear(64, 8).to(job.device)
    for step in job.steps(20):
        if step % 10 == 0:
            unpack(path)
        model(job.batch(64)).square().mean().backward()
        dist.all_reduce(model.weight.grad)
        model.zero_grad()
    dist.barrier()
    if job.rank == 0:
        os.remove(path)
        os.rmdir(folder[0])
