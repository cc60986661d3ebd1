"""Ranks meet at keys of the store, which each numbers; two met once more than the others."""

import os

import torch
import torch.distributed as dist

from hanglab.harness import Expect, scenario


class Meetings:
    """Exchanges handles of memory by the store, as symmetric memory does."""

    def __init__(self, job):
        self.store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        self.rank = job.rank
        self.count = 0

    def exchange(self, members, handle):
        self.count += 1
        self.store.set(f"meeting/{self.count}/{self.rank}", handle)
        keys = [f"meeting/{self.count}/{member}" for member in members]
        return [self.store.get(key) for key in keys]


@scenario(
    world_size=4,
    world_sizes=(4,),
    backends=("gloo",),
    expect=Expect.inconclusive(),
    reference="pytorch/pytorch#196082",
    zoo="H18",
)
def store_counters_differ(job):
    meetings = Meetings(job)
    weights = torch.zeros(64)
    everybody = list(range(job.world_size))
    for step in job.steps(10):
        dist.all_reduce(weights)
        if job.faulty and step == 4 and job.rank < 2:
            meetings.exchange([0, 1], "a handle of a pair's buffer")  # FAULT
        meetings.exchange(everybody, f"a handle of step {step}")
