"""Rank 0 hands tasks on through a ring in shared memory, whose slots its readers have to free.

It puts more tasks than the ring has slots before it takes part in the pass that frees them.
"""

import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


class Ring:
    """A ring of slots that one rank fills and all others read; counters of both are shared."""

    def __init__(self, job, slots):
        path = [tempfile.mkstemp()[1] if job.rank == 0 else ""]
        dist.broadcast_object_list(path, src=0)
        self.counters = np.memmap(path[0], np.int64, "r+" if job.rank else "w+", shape=(64,))
        self.rank, self.slots, self.size = job.rank, slots, job.world_size
        dist.barrier()

    def put(self):
        while self.counters[0] - self.counters[1 : self.size].min() >= self.slots:  # SEEN
            time.sleep(0.001)  # SEEN
        self.counters[0] += 1

    def take(self):
        while self.counters[self.rank] >= self.counters[0]:
            time.sleep(0.001)
        self.counters[self.rank] += 1


def forward(hidden):
    """A pass whose token the host needs for what it does next."""
    dist.all_reduce(hidden)
    return hidden.argmax().item()


@scenario(
    world_size=4,
    expect=Expect(Cause.MISSING_RANK, culprits={0}, group="default_pg"),
    reference="vllm-project/vllm-ascend#9405",
    zoo="H7",
    packs="serving",
)
def ring_too_small(job):
    ring = Ring(job, slots=4)
    hidden = torch.zeros(64, device=job.device)
    for step in job.steps(20):
        tasks = 8 if job.faulty and step == 9 else 2  # FAULT
        for task in range(tasks):
            if job.rank == 0:
                ring.put()
            else:
                ring.take()
                if task == 1:
                    forward(hidden)
        if job.rank == 0:
            forward(hidden)
