"""The job keeps every loss with its graph, and rank 2's container is too small for that."""

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, LimitMemory, scenario


@scenario(
    world_size=4,
    expect=Expect(Cause.OOM_KILLED, culprits={2}, location=None),
    reference="pytorch/pytorch#8976",
    faults=[LimitMemory(rank=2, mebibytes=128, at_step=5)],
    needs=("cgroup_memory",),
)
def oom_killed(job):
    model = DistributedDataParallel(torch.nn.Linear(1024, 64).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    history = []
    for _ in job.steps(60):
        activations = model(job.batch(1024, rows=1024))
        loss = activations.square().mean()
        loss.backward(retain_graph=True)
        history.append(loss)
        optimizer.step()
        optimizer.zero_grad()
