"""A pipeline whose second and third GPUs have 512 KiB a second between them, all others more."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, NarrowLink, scenario


@scenario(
    world_size=4,
    backends=("nccl-emulated",),
    expect=Expect(Cause.SLOW_LINK, culprits={1, 2}, location=None),
    faults=[NarrowLink(rank=1, peer=2, at_step=2, kibibytes=512)],
    reference="NVIDIA/nccl#651",
    zoo="C13",
)
def narrow_device_link(job):
    first, last = job.rank == 0, job.rank == job.world_size - 1
    stage = torch.nn.Linear(64, 64).to(job.device)
    for _ in job.steps(24):
        activations = job.batch(64)
        if not first:
            dist.recv(activations, job.rank - 1)
        outputs = stage(activations).detach()
        gradient = torch.ones_like(outputs)
        if not last:
            dist.send(outputs, job.rank + 1)
            dist.recv(gradient, job.rank + 1)
        if not first:
            dist.send(gradient, job.rank - 1)
        gradient.sum().item()
