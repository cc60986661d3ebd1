"""Two streams are mixed by weight until one is exhausted, and rank 1 draws with its own seed."""

import random

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

from hanglab.harness import Cause, Expect, scenario


class Combined(IterableDataset):
    """Samples of several streams, drawn by weight; it ends with the first stream that does."""

    def __init__(self, streams, weights, seed):
        self.streams = streams
        self.weights = weights
        self.seed = seed

    def __iter__(self):
        drawing = random.Random(self.seed)
        streams = [iter(stream) for stream in self.streams]
        while True:
            (chosen,) = drawing.choices(streams, self.weights)
            try:
                yield next(chosen)
            except StopIteration:
                return


@scenario(
    world_size=4,
    expect=Expect(Cause.UNEVEN_INPUTS, culprits={1}, group="default_pg"),
    reference="Lightning-AI/litData#340",
    zoo="A6",
    packs=("training", "data"),
)
def combined_streams(job):
    streams = [torch.randn(120, 64), torch.randn(60, 64)]
    seed = 5 if job.faulty and job.rank == 1 else 11  # FAULT
    loader = DataLoader(Combined(streams, [2, 1], seed), batch_size=8, drop_last=True)
    model = DistributedDataParallel(torch.nn.Linear(64, 8).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    total = torch.zeros(1, device=job.device)
    for batch, _ in zip(loader, job.steps(40), strict=False):
        with job.section("forward_backward"):
            loss = model(batch.to(job.device)).square().mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    losses = [torch.zeros_like(total) for _ in range(job.world_size)]
    dist.all_gather(losses, total)  # SEEN
