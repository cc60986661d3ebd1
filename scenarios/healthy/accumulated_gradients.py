"""Gradients are summed over four batches before DDP reduces them: most steps are silent."""

from contextlib import nullcontext

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Expect, scenario


@scenario(world_size=4, expect=Expect.healthy(), reference="huggingface/accelerate#629")
def accumulated_gradients(job):
    model = DistributedDataParallel(torch.nn.Linear(64, 8).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps(40):
        last = step % 4 == 3
        with nullcontext() if last else model.no_sync(), job.section("forward_backward"):
            (model(job.batch(64)).square().mean() / 4).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
