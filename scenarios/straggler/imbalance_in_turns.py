"""Batches of random length: at each step another rank has the longest, and all wait for it."""

import random

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from hanglab.harness import Cause, Expect, scenario


class Batches(Dataset):
    """One batch of token embeddings per index; ``lengths`` says how long each is."""

    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return torch.randn(4, self.lengths[index], 64, device="cpu")


class Reader(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(64, 4, batch_first=True)
        self.head = torch.nn.Linear(64, 8)

    def forward(self, tokens):
        attended, _ = self.attention(tokens, tokens, tokens, need_weights=False)
        return self.head(attended)


@scenario(
    world_size=2,
    expect=Expect(Cause.IMBALANCE, culprits="all", location=None),
    reference="arXiv:2505.05713",
    zoo="F4",
)
def imbalance_in_turns(job):
    chance = random.Random(job.rank)
    lengths = [chance.choice((120, 480)) if job.faulty else 300 for _ in range(60)]  # FAULT
    loader = DataLoader(Batches(lengths), batch_size=None)
    model = DistributedDataParallel(Reader().to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _, tokens in zip(job.steps(60), loader, strict=True):
        with job.section("forward_backward"):
            model(tokens.to(job.device)).square().mean().backward()
        optimizer.step()
        job.synchronize()
        optimizer.zero_grad()
