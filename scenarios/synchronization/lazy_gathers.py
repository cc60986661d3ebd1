"""Weights are gathered one by one as a generator is consumed; rank 2 consumes it at once.

Its peers hand each weight on before they gather the next, so their orders differ.
"""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


def whole_weights(shards, world_size):
    """Each weight, gathered when it is asked for."""
    for shard in shards:
        whole = torch.empty(world_size * len(shard), device=shard.device)
        dist.all_gather_into_tensor(whole, shard)  # SEEN
        yield whole


def hand_on(weights):
    for weight in weights:
        dist.broadcast(weight, src=0)  # to the engines, from the first trainer


@scenario(
    world_size=4,
    expect=Expect(Cause.COLLECTIVE_MISMATCH, culprits={2}, group="default_pg"),
    reference="huggingface/trl#6797",
    zoo="H9",
    packs="rl",
)
def lazy_gathers(job):
    shards = [torch.full((16,), float(job.rank), device=job.device) for _ in range(4)]
    for step in job.steps(10):
        weights = whole_weights(shards, job.world_size)
        if job.faulty and job.rank == 2 and step == 5:
            weights = list(weights)  # FAULT
        hand_on(weights)
