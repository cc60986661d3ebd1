"""Rank 0 uploads the last checkpoint after the others have come to their end."""

import torch
import torch.distributed as dist

from hanglab.harness import Expect, scenario


def compress(rows):
    return [torch.linalg.qr(torch.randn(200, 200)).R.abs().sum().item() for _ in range(rows)]


def upload(parts):
    return sum(len(compress(10)) for _ in range(parts))


@scenario(
    world_size=4,
    expect=Expect.healthy(),
    reference="modelscope/ms-swift#7992",
    packs="checkpoint",
)
def upload_at_the_end(job):
    model = torch.nn.Linear(64, 8).to(job.device)
    for _ in job.steps(20):
        model(job.batch(64)).square().mean().backward()
        dist.all_reduce(model.weight.grad)
        model.zero_grad()
    dist.barrier()
    if job.rank == 0:
        upload(20)
