"""Rank 2 recomputes activations three times as often as it must, inside the backward pass."""

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, scenario


class Recomputed(torch.autograd.Function):
    """A layer that keeps nothing of its forward pass and computes it again in the backward."""

    @staticmethod
    def forward(ctx, inputs, weight, times):
        ctx.save_for_backward(inputs, weight)
        ctx.times = times
        return inputs @ weight

    @staticmethod
    def backward(ctx, gradient):
        inputs, weight = ctx.saved_tensors
        for _ in range(ctx.times):
            _ = inputs @ weight  # SEEN
        return gradient @ weight.T, inputs.T @ gradient, None


class Model(torch.nn.Module):
    def __init__(self, times):
        super().__init__()
        self.times = times
        self.weight = torch.nn.Parameter(torch.randn(256, 256) / 16)
        self.head = torch.nn.Linear(256, 8)

    def forward(self, inputs):
        return self.head(Recomputed.apply(inputs, self.weight, self.times))


@scenario(
    world_size=4,
    expect=Expect(Cause.SLOW_COMPUTE, culprits={2}),
    reference="arXiv:2410.12588",
)
def slow_backward(job):
    times = 24 if job.faulty and job.rank == 2 else 1  # FAULT
    model = DistributedDataParallel(Model(times).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in job.steps(40):
        inputs = job.batch(256, rows=512)
        with job.section("forward"):
            loss = model(inputs).square().mean()
        # Everybody's is as long, since it ends with the slowest: no section tells.
        with job.section("backward"):
            loss.backward()
        optimizer.step()
        job.synchronize()
        optimizer.zero_grad()
