"""Rank 2 has no gradients after a batch of padding, and returns before the norm is summed."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


def clip_gradients(parameters, limit):
    """Scales gradients to a norm over all ranks of at most ``limit``."""
    gradients = [one.grad for one in parameters if one.grad is not None]
    if not gradients:
        return  # FAULT
    total = torch.stack([one.square().sum() for one in gradients]).sum().reshape(1)
    dist.all_reduce(total)
    scale = (limit / total.sqrt()).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(scale)


@scenario(
    world_size=4,
    expect=Expect(Cause.SKIPPED_COLLECTIVE, culprits={2}, group="default_pg"),
    reference="konstmish/prodigy#35",
    zoo="H15",
)
def no_gradients_early_return(job):
    adapter = torch.nn.Linear(64, 8).to(job.device)
    optimizer = torch.optim.SGD(adapter.parameters(), lr=0.01)
    for step in job.steps(20):
        batch = job.batch(64)
        padding = job.faulty and job.rank == 2 and step == 5
        if not padding:
            with job.section("forward_backward"):
                adapter(batch).square().mean().backward()
        clip_gradients(list(adapter.parameters()), limit=1.0)
        optimizer.step()
        optimizer.zero_grad()
        tokens = torch.tensor([0 if padding else len(batch)], device=job.device)
        everybody = [torch.empty_like(tokens) for _ in range(job.world_size)]
        dist.all_gather(everybody, tokens)  # SEEN
