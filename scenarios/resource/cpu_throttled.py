"""Rank 2 gets a tenth of a processor, as in a container with too small a CPU limit."""

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, LimitCpu, scenario


@scenario(
    world_size=4,
    expect=Expect(Cause.CPU_THROTTLED, culprits={2}, location=None),
    reference="dmlc/xgboost#7653",
    zoo="B2",
    faults=[LimitCpu(rank=2, cpus=0.1, at_step=5)],
    needs=("cgroup_cpu",),
)
def cpu_throttled(job):
    layers = [torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in job.steps(60):
        with job.section("forward_backward"):
            model(job.batch(512, rows=128)).square().mean().backward()
        optimizer.step()
        job.synchronize()
        optimizer.zero_grad()
