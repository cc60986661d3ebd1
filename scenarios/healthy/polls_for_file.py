"""Ranks poll for a file that rank 0 writes when it has prepared the data, and it does in time."""

import os
import tempfile
import time

import torch
import torch.distributed as dist

from hanglab.harness import Expect, scenario


def prepare(path):
    """A second of work on rank 0; the file has its name only when it is whole."""
    rows = [torch.linalg.qr(torch.randn(300, 300)).R.sum().item() for _ in range(40)]
    with open(f"{path}.part", "w") as file:
        file.writelines(f"{row}\n" for row in rows)
    os.rename(f"{path}.part", path)


@scenario(
    world_size=4,
    expect=Expect.healthy(),
    reference="PrimeIntellect-ai/prime-rl#1667",
    packs="data",
)
def polls_for_file(job):
    folder = [tempfile.mkdtemp() if job.rank == 0 else ""]
    dist.broadcast_object_list(folder, src=0, device=job.device)
    path = os.path.join(folder[0], "prepared")
    if job.rank == 0:
        prepare(path)
    while not os.path.exists(path):
        time.sleep(0.02)
    model = torch.nn.Linear(64, 8).to(job.device)
    for _ in job.steps(20):
        model(job.batch(64)).square().mean().backward()
        dist.all_reduce(model.weight.grad)
        model.zero_grad()
    dist.barrier()
    if job.rank == 0:
        os.remove(path)
        os.rmdir(folder[0])
