"""The job has a time limit of two seconds, and a group made later has torch's half an hour.

Rank 3 leaves an operation of that group out: nobody is told after two seconds.
"""

from datetime import timedelta

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


@scenario(
    world_size=4,
    expect=Expect(Cause.SKIPPED_COLLECTIVE, culprits={3}, group="metrics"),
    hang_after=4.0,
    reference="pytorch/pytorch#124950",
    zoo="D20",
)
def limit_of_subgroup(job):
    dist.init_process_group(job.backend, timeout=timedelta(seconds=2))
    metrics = dist.new_group(group_desc="metrics")
    model = torch.nn.Linear(64, 8).to(job.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps(20):
        with job.section("forward_backward"):
            loss = model(job.batch(64)).square().mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if not (job.faulty and job.rank == 3 and step == 5):  # FAULT
            dist.all_reduce(loss.detach(), group=metrics)
        dist.broadcast(torch.ones(4, device=job.device), src=0, group=metrics)  # SEEN
    dist.destroy_process_group()
