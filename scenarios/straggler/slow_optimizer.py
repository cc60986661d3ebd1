"""Rank 2's optimizer still checks the spectrum of every weight at each step."""

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, scenario


class CheckedSGD(torch.optim.SGD):
    """Notes the largest singular value of each weight before it changes it."""

    def __init__(self, parameters, check, **options):
        super().__init__(parameters, **options)
        self.check = check
        self.largest = 0.0

    def step(self, closure=None):
        if self.check:
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.dim() == 2:
                        values = torch.linalg.svdvals(parameter.detach())  # SEEN
                        self.largest = max(self.largest, values[0].item())
        return super().step(closure)


@scenario(
    world_size=4,
    expect=Expect(Cause.SLOW_COMPUTE, culprits={2}),
    reference="arXiv:2410.12588",
)
def slow_optimizer(job):
    layers = [torch.nn.Linear(320, 320), torch.nn.ReLU(), torch.nn.Linear(320, 320)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(job.device))
    check = job.faulty and job.rank == 2  # FAULT
    optimizer = CheckedSGD(model.parameters(), check, lr=0.01)
    for _ in job.steps(40):
        inputs = job.batch(320, rows=256)
        with job.section("forward_backward"):
            model(inputs).square().mean().backward()
        optimizer.step()
        job.synchronize()
        optimizer.zero_grad()
