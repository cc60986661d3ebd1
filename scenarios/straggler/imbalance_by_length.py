"""Rank 1's shard of the corpus holds the long documents, and nobody packs or sorts them."""

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from hanglab.harness import Cause, Expect, scenario


class Documents(Dataset):
    """Documents as embeddings, ``length`` tokens each."""

    def __init__(self, count, length):
        self.count = count
        self.length = length

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        length = self.length + int(torch.randint(8, (1,), generator=generator))
        return torch.randn(length, 64, generator=generator)


def padded(documents):
    return torch.nn.utils.rnn.pad_sequence(documents, batch_first=True)


class Reader(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(64, 4, batch_first=True)
        self.head = torch.nn.Linear(64, 8)

    def forward(self, tokens):
        attended, _ = self.attention(tokens, tokens, tokens, need_weights=False)  # SEEN
        return self.head(attended)


def learn(model, tokens):
    model(tokens).square().mean().backward()  # SEEN


@scenario(
    world_size=2,
    expect=Expect(Cause.IMBALANCE, culprits={1}),
    reference="arXiv:2505.05713",
    zoo="F4",
)
def imbalance_by_length(job):
    length = 560 if job.faulty and job.rank == 1 else 200  # FAULT
    documents = Documents(50 * 4, length)
    loader = DataLoader(documents, batch_size=4, collate_fn=padded)
    model = DistributedDataParallel(Reader().to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _, tokens in zip(job.steps(50), loader, strict=True):
        with job.section("forward_backward"):
            learn(model, tokens.to(job.device))
        optimizer.step()
        job.synchronize()
        optimizer.zero_grad()
