"""Rank 1 reads its shard from a storage ten times as slow as its peers'."""

import time

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from hanglab.harness import Cause, Expect, scenario


class StoredRecords(Dataset):
    """Records behind a storage that takes ``latency`` seconds for each."""

    def __init__(self, count, latency):
        self.count = count
        self.latency = latency

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(self.latency)
        return torch.full((256,), index / self.count, device="cpu")


@scenario(
    world_size=4,
    expect=Expect(Cause.SLOW_INPUT, culprits={1}),
    reference="traceopt-ai/traceml#165",
    zoo="F3",
)
def slow_input(job):
    latency = 0.010 if job.faulty and job.rank == 1 else 0.001  # FAULT
    loader = DataLoader(StoredRecords(40 * 8, latency), batch_size=8, num_workers=1)
    layers = [torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _, batch in zip(job.steps(40), loader, strict=True):  # SEEN
        with job.section("forward_backward"):
            model(batch.to(job.device).repeat(24, 1)).square().mean().backward()
        optimizer.step()
        job.synchronize()
        optimizer.zero_grad()
