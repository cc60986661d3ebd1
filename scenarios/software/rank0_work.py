"""Rank 0 tokenizes the corpus for everybody, and the others wait for it at a barrier."""

import re

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, scenario


def words(line):
    return re.findall(r"\w+", line)  # SEEN


def tokenize(lines):
    """Count each word of the corpus."""
    counts: dict[str, int] = {}
    for number in range(lines):
        line = f"line {number} of a corpus that only one rank reads " * 40  # SEEN
        for word in words(line):  # SEEN
            counts[word] = counts.get(word, 0) + 1  # SEEN
    return counts


@scenario(
    world_size=4,
    expect=Expect(Cause.RANK0_WORK, culprits={0}),
    hang_after=1.0,
    reference="hiyouga/LlamaFactory#360",
    zoo="A9",
)
def rank0_work(job):
    model = DistributedDataParallel(torch.nn.Linear(64, 8).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps(20):
        if step == 5:
            if job.rank == 0:
                tokenize(60_000 if job.faulty else 10)  # FAULT
            dist.barrier()
        with job.section("forward_backward"):
            model(job.batch(64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
