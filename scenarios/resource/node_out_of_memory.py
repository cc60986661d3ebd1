"""Rank 1 keeps every batch, and its container gets too small for them."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, NodeMemory, scenario


@scenario(
    world_size=2,
    expect=Expect(Cause.OOM_KILLED, culprits={1}, location=None),
    reference="pytorch/pytorch#8976",
    faults=[NodeMemory(rank=1, mebibytes=448, at_step=5)],
    needs=("docker",),
)
def node_out_of_memory(job):
    history = []
    loss = torch.ones(1)
    for _ in job.steps(1000 if job.faulty else 40):
        batch = job.batch(1024, rows=1024)
        if job.rank == 1:
            history.append(batch)
        dist.all_reduce(loss)
