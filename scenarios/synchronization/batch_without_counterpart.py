"""Rank 1 leaves its receive out of a batch of messages, and nobody takes what rank 0 sends.

gloo hands small messages over without a receiver; NCCL does not.
"""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


@scenario(
    world_size=4,
    backends=("nccl", "nccl-emulated"),
    expect=Expect(Cause.P2P_UNMATCHED, culprits={1}),
    reference="NVIDIA/nccl#2130",
    zoo="E20",
)
def batch_without_counterpart(job):
    right, left = (job.rank + 1) % job.world_size, (job.rank - 1) % job.world_size
    hidden = torch.zeros(64, device=job.device)
    for step in job.steps(20):
        received = torch.empty_like(hidden)
        batch = [dist.P2POp(dist.isend, hidden, right)]
        if not (job.faulty and job.rank == 1 and step == 5):  # FAULT
            batch.append(dist.P2POp(dist.irecv, received, left))
        for work in dist.batch_isend_irecv(batch):  # SEEN
            work.wait()
        hidden = received + 1
        dist.all_reduce(hidden)  # SEEN
