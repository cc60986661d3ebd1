"""Ranks 0 and 1 get a group of their own; rank 3, which is not in it, takes no part in the split.

A group of ranks that are bound to their devices is split off another one's communicator, which
whoever is in that has to take part in.
"""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


@scenario(
    world_size=4,
    backends=("nccl", "nccl-emulated"),
    expect=Expect(Cause.GROUP_CREATION, culprits={3}),
    reference="NVIDIA-NeMo/RL#3189",
)
def split_left_out(job):
    model = torch.nn.Linear(64, 8).to(job.device)
    heads = None
    for step in job.steps(20):
        loss = model(job.batch(64)).square().mean()
        loss.backward()
        if step == 5 and not (job.faulty and job.rank == 3):  # FAULT
            heads = dist.new_group([0, 1], group_desc="heads")
        if heads not in (None, dist.GroupMember.NON_GROUP_MEMBER):
            dist.all_reduce(model.bias.grad, group=heads)
        dist.all_reduce(model.weight.grad)  # SEEN
        model.zero_grad()
        loss.item()  # SEEN
