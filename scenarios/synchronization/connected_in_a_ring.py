"""Each rank first sends to its right neighbour, and every pair connects at its first message.

A rank's host waits until its right neighbour connects, which waits for its own: nobody is first.
"""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


@scenario(
    world_size=4,
    backends=("nccl-emulated",),
    expect=Expect(Cause.P2P_DEADLOCK, culprits={0, 1, 2, 3}),
    reference="NVIDIA/Megatron-LM#5240",
    zoo="D9",
)
def connected_in_a_ring(job):
    right, left = (job.rank + 1) % job.world_size, (job.rank - 1) % job.world_size
    hidden = torch.zeros(64, device=job.device)
    for step in job.steps(20):
        dist.all_reduce(hidden)
        if step < 5:
            continue
        received = torch.empty_like(hidden)
        if job.faulty or job.rank % 2 == 0:  # FAULT
            works = [dist.isend(hidden, right), dist.irecv(received, left)]  # SEEN
        else:
            works = [dist.irecv(received, left), dist.isend(hidden, right)]
        for work in filter(None, works):
            work.wait()
        hidden = received + 1
