"""A job that grows: after some steps all ranks leave their groups, and meet again in new ones."""

import torch
import torch.distributed as dist

from hanglab.harness import Expect, scenario


@scenario(
    world_size=4,
    backends=("gloo",),
    expect=Expect.healthy(),
    reference="pytorch/pytorch#25390",
)
def groups_rebuilt(job):
    model = torch.nn.Linear(64, 8)
    averaging = None
    for step in job.steps(40):
        if step % 10 == 0:
            if averaging is not None:
                dist.destroy_process_group(averaging)
            averaging = dist.new_group(group_desc=f"averaging-{step // 10}")
        model(job.batch(64)).square().mean().backward()
        dist.all_reduce(model.weight.grad, group=averaging)
        model.zero_grad()
