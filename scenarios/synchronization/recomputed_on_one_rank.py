"""Rank 2 recomputes gathered activations in its backward pass; its peers have kept them.

So that rank gathers once more than the others.
"""

import torch
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint

from hanglab.harness import Cause, Expect, scenario


class Gather(torch.autograd.Function):
    """Activations of all ranks; the gradient of the rank's own part goes back."""

    @staticmethod
    def forward(ctx, activations):
        parts = [torch.empty_like(activations) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, activations)  # SEEN
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.chunk(dist.get_world_size())[dist.get_rank()]


@scenario(
    world_size=4,
    backends=("gloo",),
    expect=Expect(Cause.COLLECTIVE_MISMATCH, culprits={2}, group="default_pg"),
    reference="pytorch/pytorch#147561",
    zoo="E18",
)
def recomputed_on_one_rank(job):
    layers = [torch.nn.Linear(64, 64) for _ in range(3)]

    def block(activations, layer):
        return Gather.apply(layer(activations)).chunk(job.world_size)[job.rank].relu()

    for step in job.steps(20):
        activations = job.batch(64).requires_grad_()
        for number, layer in enumerate(layers):
            if job.faulty and job.rank == 2 and step == 5 and number == 1:  # FAULT
                activations = checkpoint(block, activations, layer, use_reentrant=False)
            else:
                activations = block(activations, layer)
        activations.square().mean().backward()
        for layer in layers:
            dist.all_reduce(layer.weight.grad)
            layer.zero_grad()
