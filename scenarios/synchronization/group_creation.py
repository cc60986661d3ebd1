"""The ranks form a group for averaging at a step that rank 1's configuration puts later."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


@scenario(
    world_size=4,
    expect=Expect(Cause.GROUP_CREATION, culprits={1}),
    reference="pytorch/pytorch#130102",
    zoo="E8",
)
def group_creation(job):
    average_from = 500 if job.faulty and job.rank == 1 else 5  # FAULT
    averaging = None
    model = torch.nn.Linear(64, 8).to(job.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps(20):
        if step == average_from:
            averaging = dist.new_group(group_desc="averaging")
        with job.section("forward_backward"):
            model(job.batch(64)).square().mean().backward()
        dist.all_reduce(model.weight.grad)  # SEEN
        optimizer.step()
        optimizer.zero_grad()
        if averaging is not None:
            dist.all_reduce(model.weight.data, group=averaging)
            model.weight.data /= job.world_size
