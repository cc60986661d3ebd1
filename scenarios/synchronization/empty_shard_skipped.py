"""Rank 3's shard of a small matrix is empty, and it leaves the exchange of shards to the others."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


def orthogonalize(shard, rows_of):
    """Exchanges shards so that each rank has whole columns, and back again."""
    if shard.numel() == 0:
        return shard  # FAULT
    columns = shard.shape[1] // len(rows_of)
    sent = torch.cat([part.flatten() for part in shard.split(columns, dim=1)])
    sizes = [rows * columns for rows in rows_of]
    received = torch.empty(sum(sizes), device=shard.device)
    dist.all_to_all_single(received, sent, sizes, [shard.shape[0] * columns] * len(rows_of))
    return received


@scenario(
    world_size=4,
    world_sizes=(4,),
    expect=Expect(Cause.SKIPPED_COLLECTIVE, culprits={3}, group="default_pg"),
    reference="microsoft/dion#74",
    zoo="H14",
)
def empty_shard_skipped(job):
    for step in job.steps(20):
        # Seven rows in shards of two leave one to the last rank, six none.
        rows = 6 if job.faulty and step == 5 else 7
        rows_of = [max(0, min(2, rows - 2 * rank)) for rank in range(job.world_size)]
        orthogonalize(torch.randn(rows_of[job.rank], 8, device=job.device), rows_of)
        dist.broadcast(torch.ones(1, device=job.device), src=0)  # SEEN
