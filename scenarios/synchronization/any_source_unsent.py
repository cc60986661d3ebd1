"""A coordinator takes metrics from whichever worker comes first; worker 2 does not send its own."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


def collect(workers):
    """The sum of what the workers send, in the order in which it comes."""
    total, metric = torch.zeros(1), torch.zeros(1)
    for _ in range(workers):
        dist.recv(metric)
        total += metric
    return total


@scenario(
    world_size=4,
    backends=("gloo",),
    expect=Expect(Cause.P2P_UNMATCHED, culprits={2}, group="default_pg"),
    reference="pytorch/pytorch#49383",
)
def any_source_unsent(job):
    model = torch.nn.Linear(64, 1)
    for step in job.steps(20):
        with job.section("forward"):
            metric = model(job.batch(64)).mean().detach().view(1)
        if job.rank == 0:
            metric = collect(job.world_size - 1)
        elif not (job.faulty and job.rank == 2 and step == 5):  # FAULT
            dist.send(metric, 0)
        dist.broadcast(metric, src=0)  # SEEN
