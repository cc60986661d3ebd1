"""Rank 1 reduces its metrics in the group of the gradients, at the line where all use their own."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


@scenario(
    world_size=4,
    expect=Expect(Cause.COLLECTIVE_MISMATCH, culprits={1}),
    reference="pytorch/pytorch#142356",
)
def wrong_group(job):
    everybody = list(range(job.world_size))
    gradients = dist.new_group(everybody, group_desc="gradients")
    metrics = dist.new_group(everybody, group_desc="metrics")
    model = torch.nn.Linear(64, 8).to(job.device)
    for step in job.steps(20):
        with job.section("forward_backward"):
            loss = model(job.batch(64)).square().mean()
            loss.backward()
        dist.all_reduce(model.weight.grad, group=gradients)
        shared = metrics
        if job.faulty and job.rank == 1 and step == 5:  # FAULT
            shared = gradients
        dist.all_reduce(loss.detach().view(1), group=shared)  # SEEN
        model.zero_grad()
