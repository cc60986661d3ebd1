"""A plan says whether an exchange gets a group of its own; rank 2 has an old one in its cache."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


class Plans:
    """The way to transpose a grid of some size: over all ranks, or over a group of its own."""

    def __init__(self):
        self.cache = {}

    def plan(self, size):
        if size not in self.cache:
            group = dist.new_group(group_desc=f"transpose-{size}")
            self.cache[size] = group
        return self.cache[size]


@scenario(
    world_size=4,
    expect=Expect(Cause.GROUP_CREATION, culprits={2}),
    reference="NVIDIA/cuDecomp#98",
    zoo="H24",
)
def cached_plan_split(job):
    plans = Plans()
    if job.faulty and job.rank == 2:
        plans.cache[32] = None  # FAULT  left by a warm-up that ran on this rank alone
    for step in job.steps(20):
        size = 16 if step < 6 else 32
        grid = torch.randn(size, 8, device=job.device)
        dist.all_reduce(grid, group=plans.plan(size))  # SEEN
