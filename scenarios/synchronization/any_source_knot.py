"""Workers that hand work on to each other all wait for whatever comes, and nobody has any."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


def hand_on(work, rank, size, first):
    """Send to the next rank what came from anybody; exactly one has to begin."""
    if first:
        dist.send(work, (rank + 1) % size)
        dist.recv(work)
    else:
        dist.recv(work)  # SEEN
        dist.send(work, (rank + 1) % size)


@scenario(
    world_size=4,
    backends=("gloo",),
    expect=Expect(Cause.P2P_DEADLOCK, culprits="all", group="default_pg"),
    reference="pytorch/pytorch#49383",
)
def any_source_knot(job):
    work = torch.zeros(256)
    for step in job.steps(20):
        with job.section("work"):
            work = work.add(1).tanh()
        first = job.rank == step % job.world_size
        if job.faulty and step >= 5:  # FAULT
            first = False
        hand_on(work, job.rank, job.world_size, first)
        dist.barrier()
