"""Rank 1's batch sends no token to the second expert, so the hook that gathers it never runs there.

Each gather looks like the other, so it is in the reduction that its peers are not yet in.
"""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


class ShardedLinear(torch.nn.Module):
    """A layer whose weight is spread over all ranks, and gathered before each use."""

    def __init__(self, size, ranks):
        super().__init__()
        self.shard = torch.nn.Parameter(torch.randn(size // ranks, size) / size)
        self.register_forward_pre_hook(self.gather)
        self.ranks = ranks

    def gather(self, module, inputs):
        parts = [torch.empty_like(self.shard) for _ in range(self.ranks)]
        dist.all_gather(parts, self.shard.detach())
        self.weight = torch.cat(parts)

    def forward(self, tokens):
        return tokens @ self.weight


def forward(experts, output, tokens, chosen):
    for number, expert in enumerate(experts):
        if (chosen == number).any():  # FAULT
            tokens[chosen == number] = expert(tokens[chosen == number])
    return output(tokens)


@scenario(
    world_size=4,
    backends=("gloo",),
    expect=Expect(Cause.SKIPPED_COLLECTIVE, culprits={1}, group="default_pg"),
    reference="deepspeedai/DeepSpeed#7998",
    zoo="E10",
)
def experts_without_tokens(job):
    experts = [ShardedLinear(64, job.world_size) for _ in range(3)]
    output = ShardedLinear(64, job.world_size)
    with torch.no_grad():
        for step in job.steps(20):
            tokens = torch.randn(60, 64)
            chosen = torch.arange(60) % 3
            if job.faulty and job.rank == 1 and step == 5:
                chosen[chosen == 1] = 2
            loss = forward(experts, output, tokens, chosen).square().mean()
            dist.all_reduce(loss)  # SEEN
