"""Rank 1's container may use a tenth of a processor."""

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, NodeCpu, scenario


@scenario(
    world_size=2,
    expect=Expect(Cause.CPU_THROTTLED, culprits={1}, location=None),
    reference="dmlc/xgboost#7653",
    zoo="B2",
    faults=[NodeCpu(rank=1, cpus=0.1, at_step=5)],
    needs=("docker",),
    hang_after=5,
)
def node_throttled(job):
    layers = [torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in job.steps(80):
        with job.section("forward_backward"):
            model(job.batch(512, rows=512)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
