"""Rank 2 has fewer batches than its peers, and DDP's join answers for it until they are done."""

import torch
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Expect, scenario


@scenario(
    world_size=4,
    expect=Expect.healthy(),
    reference="pytorch/pytorch#38174",
    packs=("training", "data"),
)
def uneven_inputs_joined(job):
    model = DistributedDataParallel(torch.nn.Linear(64, 8).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = 6 if job.rank == 2 else 24
    with Join([model]):
        for _ in job.steps(batches):
            with job.section("forward_backward"):
                model(job.batch(64)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
