"""The first allocation of a workspace registers it with all ranks; rank 3 has one from before.

No line of the training says that an allocation communicates.
"""

import functools

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


class Workspaces:
    """Buffers that all ranks can reach, kept by size."""

    def __init__(self, device):
        self.device = device
        self.allocate = functools.cache(self.register)

    def register(self, size):
        handle = torch.zeros(1, device=self.device)
        handles = [torch.empty_like(handle) for _ in range(dist.get_world_size())]
        dist.all_gather(handles, handle)
        return torch.empty(size, device=self.device)


@scenario(
    world_size=4,
    expect=Expect(Cause.SKIPPED_COLLECTIVE, culprits={3}, group="default_pg"),
    reference="pytorch/pytorch#195501",
    zoo="H19",
    packs="serving",
)
def hidden_in_allocation(job):
    workspaces = Workspaces(job.device)
    for step in job.steps(20):
        size = 16 if step < 6 else 32
        if job.faulty and job.rank == 3 and step == 6:
            size = 16  # FAULT  a shorter batch, for which it has a workspace
        hidden = workspaces.allocate(size).normal_()[:16]
        dist.all_reduce(hidden)  # SEEN
