"""Rank 1 gathers the gradient norms to say who overflowed, while its peers sum them."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


def global_norm(parameters, overflowed):
    """The norm over all ranks; where this rank overflowed, it asks for everybody's."""
    norm = torch.stack([p.grad.square().sum() for p in parameters]).sum().reshape(1)
    if overflowed:
        everybody = torch.empty(dist.get_world_size(), device=norm.device)
        dist.all_gather_into_tensor(everybody, norm)  # SEEN
        return everybody.sum().sqrt()
    dist.all_reduce(norm)
    return norm.sqrt()


@scenario(
    world_size=4,
    expect=Expect(Cause.COLLECTIVE_MISMATCH, culprits={1}, group="default_pg"),
    reference="huggingface/accelerate#3250",
    zoo="E3",
)
def collective_mismatch(job):
    layers = [torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)]
    model = torch.nn.Sequential(*layers).to(job.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps(20):
        with job.section("forward_backward"):
            model(job.batch(64)).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= job.world_size
        overflowed = job.faulty and job.rank == 1 and step == 5  # FAULT
        norm = global_norm(list(model.parameters()), overflowed)
        if norm < 100:
            optimizer.step()
        optimizer.zero_grad()
