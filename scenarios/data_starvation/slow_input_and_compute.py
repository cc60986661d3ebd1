"""Rank 1 waits for its slow storage while rank 2 computes twice: two faults, two findings."""

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
        time.sleep(self.latency)  # SEEN
        return torch.full((256,), index / self.count, device="cpu")


@scenario(
    world_size=4,
    expect=Expect(Cause.SLOW_INPUT, culprits={1}, also=(Expect(Cause.SLOW_COMPUTE, culprits={2}),)),
    reference="traceopt-ai/traceml#165",
)
def slow_input_and_compute(job):
    latency = 0.006 if job.faulty and job.rank == 1 else 0.0005  # FAULT
    passes = 7 if job.faulty and job.rank == 2 else 1  # FAULT
    loader = DataLoader(StoredRecords(40 * 8, latency), batch_size=8)
    layers = [torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)]
    encoder = torch.nn.Sequential(*layers).to(job.device).requires_grad_(False)
    model = DistributedDataParallel(torch.nn.Linear(256, 8).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _, batch in zip(job.steps(40), loader, strict=True):
        inputs = batch.to(job.device).repeat(64, 1)
        with job.section("encode"):
            for _ in range(passes):
                encoded = encoder(inputs)  # SEEN
        with job.section("forward_backward"):
            model(encoded).square().mean().backward()
        optimizer.step()
        job.synchronize()
        optimizer.zero_grad()
