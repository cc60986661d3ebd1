"""Rank 2 pads its embeddings to its own longest sequence, and not to everybody's."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


def average(embeddings):
    """The mean over all ranks of embeddings of one shape."""
    dist.all_reduce(embeddings)  # SEEN
    return embeddings / dist.get_world_size()


@scenario(
    world_size=4,
    expect=Expect(Cause.SIZE_MISMATCH, culprits={2}, group="default_pg"),
    reference="pytorch/pytorch#143536",
    zoo="E4",
)
def size_mismatch(job):
    model = torch.nn.Embedding(1000, 64).to(job.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps(20):
        length = 48
        if job.faulty and job.rank == 2 and step == 5:  # FAULT
            length = 40
        tokens = torch.randint(1000, (8, length), device=job.device)
        with job.section("forward_backward"):
            embeddings = model(tokens)
            embeddings.square().mean().backward()
        average(embeddings.detach())
        optimizer.step()
        optimizer.zero_grad()
