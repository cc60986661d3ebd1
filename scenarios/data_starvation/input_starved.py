"""Every rank trains faster than its loader reads from the shared storage."""

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
        return torch.full((512,), index / self.count, device="cpu")


@scenario(
    world_size=4,
    expect=Expect(Cause.INPUT_STARVED, culprits="all"),
    reference="foundation-model-stack/fms-fsdp#19",
)
def input_starved(job):
    # Longer than a step takes where eight processes want each processor, too.
    latency = 0.030 if job.faulty else 0.0  # FAULT
    loader = DataLoader(StoredRecords(20 * 8, latency), batch_size=8, num_workers=1)
    layers = [torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 64)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _, batch in zip(job.steps(20), loader, strict=True):  # SEEN
        with job.section("forward_backward"):
            model(batch.to(job.device).repeat(8, 1)).square().mean().backward()
        optimizer.step()
        job.synchronize()
        optimizer.zero_grad()
