"""Rank 1 meets a bad batch and raises; its node's clock is an hour ahead of all others."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, ClockSkew, Expect, scenario


@scenario(
    world_size=3,
    expect=Expect(Cause.EXCEPTION, culprits={1}),
    reference="measured by hand; no public thread",
    zoo="B6",
    faults=[ClockSkew(rank=1, seconds=3600, in_control=True)],
    # It ends by itself, and containers take their time: no capture is to come before that.
    hang_after=6,
    needs=("docker",),
)
def exception_skewed(job):
    model = torch.nn.Linear(64, 8)
    for step in job.steps(40):
        batch = job.batch(64)
        if job.faulty and job.rank == 1 and step == 10:  # FAULT
            batch = batch[:, :-1]
        loss = model(batch).sum()  # SEEN
        loss.backward()
        dist.all_reduce(model.weight.grad)
        model.zero_grad()
