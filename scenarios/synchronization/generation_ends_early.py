"""Rank 3's text ends early, and it leaves the loop in which its peers still gather weights.

Every token takes a pass through a sharded layer, so all ranks must make as many of them.
"""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario

END = 0
LONGEST = 8


class Policy:
    """One sharded layer that gives the next token of a text."""

    def __init__(self, job):
        self.shard = torch.randn(64 // job.world_size, 64, device=job.device)
        self.whole = torch.empty(64, 64, device=job.device)

    def next_token(self, hidden):
        dist.all_gather_into_tensor(self.whole, self.shard)
        return torch.tanh(hidden @ self.whole)

    def generate(self, prompt, ends_at):
        tokens: list[int] = []
        while len(tokens) < LONGEST:
            prompt = self.next_token(prompt)
            tokens.append(END if len(tokens) == ends_at else len(tokens) + 1)
            if tokens[-1] == END:
                break  # FAULT
        return tokens


@scenario(
    world_size=4,
    expect=Expect(Cause.SKIPPED_COLLECTIVE, culprits={3}, group="default_pg"),
    reference="deepspeedai/DeepSpeed#8262",
    zoo="E11",
    packs="rl",
)
def generation_ends_early(job):
    policy = Policy(job)
    for step in job.steps(12):
        early = job.faulty and job.rank == 3 and step == 5
        tokens = policy.generate(job.batch(64, rows=1), ends_at=4 if early else LONGEST - 1)
        reward = torch.tensor([float(len(tokens))], device=job.device)
        dist.all_reduce(reward)  # SEEN
