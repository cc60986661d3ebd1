"""Neighbours exchange halos: even ranks send first, odd ones receive, and each begins elsewhere."""

import torch
import torch.distributed as dist

from hanglab.harness import Expect, scenario


def exchange(mine, neighbour, send_first):
    theirs = torch.empty_like(mine)
    for sends in (send_first, not send_first):
        if sends:
            dist.send(mine, neighbour)
        else:
            dist.recv(theirs, neighbour)
    return theirs


@scenario(
    world_size=4,
    world_sizes=(2, 4, 8),
    backends=("gloo",),
    expect=Expect.healthy(),
    reference="pytorch/pytorch#172668",
)
def order_by_rank(job):
    left, right = (job.rank - 1) % job.world_size, (job.rank + 1) % job.world_size
    even = job.rank % 2 == 0
    field = torch.randn(64)
    for _ in job.steps(30):
        # An even rank's right neighbour is an odd one's left.
        for neighbour in (right, left) if even else (left, right):
            field = (field + exchange(field, neighbour, send_first=even)).tanh()
