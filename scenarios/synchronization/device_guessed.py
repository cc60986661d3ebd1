"""GPUs are given out in reverse; rank 1's barrier takes its rank for its GPU."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


@scenario(
    world_size=2,
    gpus=2,
    backends=("nccl", "nccl-emulated"),
    expect=Expect(Cause.MISSING_RANK, culprits={1}),
    reference="pytorch/pytorch#60752",
    zoo="E21",
)
def device_guessed(job):
    mine = job.world_size - 1 - job.rank
    torch.cuda.set_device(mine)
    dist.init_process_group("nccl")
    for step in job.steps(20):
        dist.all_reduce(torch.ones(64, device=f"cuda:{mine}"))
        device = job.rank if job.faulty and job.rank == 1 and step == 5 else mine  # FAULT
        dist.barrier(device_ids=[device])  # SEEN
        torch.cuda.synchronize()
    dist.destroy_process_group()
