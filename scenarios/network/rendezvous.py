"""Rank 2 was given the port of an earlier run, where nobody answers; the job never forms."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


@scenario(
    world_size=4,
    # The emulated backend meets its peers later, at the first operation.
    backends=("gloo", "nccl"),
    expect=Expect(Cause.RENDEZVOUS, culprits={2}),
    reference="pytorch/pytorch#129367",
)
def rendezvous(job):
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if job.faulty and job.rank == 2:  # FAULT
        port = 9
    dist.init_process_group(  # SEEN
        job.backend,
        init_method=f"tcp://{address}:{port}",
        rank=job.rank,
        world_size=job.world_size,
        timeout=timedelta(seconds=60),
    )
    total = torch.ones(1, device=job.device)
    for _ in job.steps(10):
        dist.all_reduce(total)
    dist.destroy_process_group()
