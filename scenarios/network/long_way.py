"""Every packet to rank 1's node takes 50 ms, as if it stood on another continent."""

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Delay, Expect, scenario


@scenario(
    world_size=3,
    expect=Expect(Cause.SLOW_LINK, culprits={1}, location=None),
    reference="measured by hand; no public thread",
    faults=[Delay(rank=1, milliseconds=50)],
    needs=("docker", "outside_delay"),
    hang_after=5,
)
def long_way(job):
    model = DistributedDataParallel(torch.nn.Linear(256, 256))
    for _ in job.steps(30):
        model(job.batch(256)).square().mean().backward()
        model.zero_grad()
