"""Rank 0 takes results from whoever has one; workers are of different speed, and send as many."""

import threading

import torch
import torch.distributed as dist

from hanglab.harness import Expect, scenario

ROUNDS = 30


@scenario(
    world_size=4,
    backends=("gloo",),
    expect=Expect.healthy(),
    reference="pytorch/pytorch#49383",
)
def work_from_any(job):
    result = torch.zeros(64)
    if job.rank == 0:
        for _ in range(ROUNDS):
            for _ in range(job.world_size - 1):
                sender = dist.recv(result)
                dist.send(result, sender)
        return
    for _ in job.steps(ROUNDS):
        threading.Event().wait(0.01 * job.rank)
        dist.send(result, 0)
        dist.recv(result, 0)
