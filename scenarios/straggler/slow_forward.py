"""Rank 2 runs the encoder a second time, to log activations that nobody reads."""

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, scenario


class Tower(torch.nn.Module):
    """Encodes its inputs, and logs the activations where asked to."""

    def __init__(self, log):
        super().__init__()
        self.log = log
        self.encoder = torch.nn.Sequential(
            torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)
        )
        self.encoder.requires_grad_(False)
        self.head = torch.nn.Linear(256, 8)
        self.logged = 0.0

    def forward(self, inputs):
        encoded = self.encoder(inputs)
        if self.log:
            self.logged = self.encoder(inputs).abs().mean().item()  # SEEN
        return self.head(encoded)


@scenario(
    world_size=4,
    expect=Expect(Cause.SLOW_COMPUTE, culprits={2}),
    reference="arXiv:2505.05713",
)
def slow_forward(job):
    tower = Tower(log=job.faulty and job.rank == 2)  # FAULT
    model = DistributedDataParallel(tower.to(job.device))
    optimizer = torch.optim.SGD(tower.head.parameters(), lr=0.01)
    for _ in job.steps(50):
        inputs = job.batch(256, rows=1024)
        with job.section("forward"):
            loss = model(inputs).square().mean()
        with job.section("backward"):
            loss.backward()
        optimizer.step()
        job.synchronize()
        optimizer.zero_grad()
