"""Rank 3's replica has no tokens in a step, so it votes in the wrong group.

Ranks of one row share a model (tensor parallel), those of one column have copies (data parallel).
The vote on whether anybody has tokens left is taken over the column, but a branch for steps
without tokens takes it over the row.
"""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


def anybody_busy(tokens, group, device):
    busy = torch.tensor([int(tokens > 0)], device=device)
    dist.all_reduce(busy, op=dist.ReduceOp.MAX, group=group)  # SEEN
    return bool(busy.item())


@scenario(
    world_size=4,
    world_sizes=(4,),
    expect=Expect(Cause.COLLECTIVE_MISMATCH, culprits={3}),
    reference="vllm-project/vllm#43547",
    zoo="H4",
    packs="serving",
)
def drained_replica(job):
    rows = [dist.new_group(ranks, group_desc="tensor") for ranks in ([0, 1], [2, 3])]
    columns = [dist.new_group(ranks, group_desc="data") for ranks in ([0, 2], [1, 3])]
    tensor, data = rows[job.rank // 2], columns[job.rank % 2]
    layer = torch.nn.Linear(64, 64).to(job.device)
    with torch.no_grad():
        for step in job.steps(20):
            tokens = 0 if job.faulty and job.rank == 3 and step == 7 else 8  # FAULT
            if anybody_busy(tokens, data if tokens else tensor, job.device):
                part = layer(job.batch(64, rows=tokens))
                whole = torch.empty(2 * tokens, 64, device=job.device)
                dist.all_gather_into_tensor(whole, part, group=tensor)
