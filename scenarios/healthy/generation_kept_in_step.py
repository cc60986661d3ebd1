"""Texts end at different lengths, and a rank whose text has ended makes passes until all have."""

import torch
import torch.distributed as dist

from hanglab.harness import Expect, scenario

LONGEST = 8


@scenario(
    world_size=4,
    expect=Expect.healthy(),
    reference="deepspeedai/DeepSpeed#8262",
    packs="rl",
)
def generation_kept_in_step(job):
    shard = torch.randn(64 // job.world_size, 64, device=job.device)
    whole = torch.empty(64, 64, device=job.device)
    for step in job.steps(12):
        ends_at = (3 * job.rank + step) % LONGEST
        hidden, tokens, unfinished = job.batch(64, rows=1), 0, True
        while unfinished:
            dist.all_gather_into_tensor(whole, shard)
            if tokens <= ends_at:
                hidden = torch.tanh(hidden @ whole)
                tokens += 1
            going_on = torch.tensor([int(tokens <= ends_at)], device=job.device)
            dist.all_reduce(going_on, op=dist.ReduceOp.MAX)
            unfinished = bool(going_on.item())
