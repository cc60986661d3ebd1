"""Steps take between one and four times as long, on every rank at its own times."""

import random
import threading

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Expect, scenario


@scenario(world_size=4, expect=Expect.healthy(), reference="arXiv:2505.05713")
def noisy_steps(job):
    model = DistributedDataParallel(torch.nn.Linear(64, 8).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in job.steps(120):
        with job.section("read"):
            threading.Event().wait(random.choice([0.005, 0.005, 0.01, 0.02]))
        with job.section("forward_backward"):
            model(job.batch(64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
