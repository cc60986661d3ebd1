"""The network of rank 2's node loses everything, both ways, in the middle of the training."""

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, CutOff, Expect, scenario


@scenario(
    world_size=3,
    expect=Expect(Cause.PARTITION, culprits={2}, location=None),
    reference="measured by hand; no public thread",
    faults=[CutOff(rank=2, at_step=10)],
    needs=("docker", "outside_filter"),
    hang_after=3,
)
def node_cut_off(job):
    model = DistributedDataParallel(torch.nn.Linear(512, 512))
    for _ in job.steps(5000 if job.faulty else 100):
        model(job.batch(512)).square().mean().backward()
        model.zero_grad()
