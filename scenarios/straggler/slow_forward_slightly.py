"""Rank 1 needs a third more for its forward pass: its shard keeps more of the layers."""

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, scenario


class Shard(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = [torch.nn.Linear(512, 512) for _ in range(layers)]
        self.head = torch.nn.Linear(512, 8)

    def forward(self, inputs):
        with torch.no_grad():
            for layer in self.layers:
                inputs = layer(inputs).relu()  # SEEN
        return self.head(inputs)


def loss_of(model, inputs):
    return model(inputs).square().mean()  # SEEN


@scenario(
    world_size=2,
    expect=Expect(Cause.SLOW_COMPUTE, culprits={1}),
    reference="arXiv:2410.12588",
)
def slow_forward_slightly(job):
    layers = 13 if job.faulty and job.rank == 1 else 10  # FAULT
    model = DistributedDataParallel(Shard(layers).to(job.device))
    optimizer = torch.optim.SGD(model.module.head.parameters(), lr=0.01)
    for _ in job.steps(240):
        inputs = job.batch(512, rows=256)
        with job.section("forward"):
            loss = loss_of(model, inputs)
        with job.section("backward"):
            loss.backward()
        optimizer.step()
        job.synchronize()
        optimizer.zero_grad()
