"""A loader worker of rank 1 meets a record that needs too much memory, and the kernel kills it."""

import os
import signal
import time

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from hanglab.harness import Cause, Expect, scenario


class Images(Dataset):
    """Decoded images; ``bomb`` is the index of one that unpacks to far more than its size."""

    def __init__(self, count, bomb):
        self.count = count
        self.bomb = bomb

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index == self.bomb:  # FAULT
            time.sleep(0.3)  # memory fills up for a while before the killer comes
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.full((512,), index / self.count, device="cpu")


@scenario(
    world_size=4,
    expect=Expect(Cause.LOADER_WORKER_DIED, culprits={1}),
    reference="pytorch/pytorch#8976",
    zoo="A4",
)
def loader_worker_died(job):
    bomb = 5 * 128 if job.faulty and job.rank == 1 else None
    loader = DataLoader(Images(12 * 128, bomb), batch_size=128, num_workers=1)
    layers = [torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _, batch in zip(job.steps(12), loader, strict=True):  # SEEN
        with job.section("forward_backward"):
            model(batch.to(job.device)).square().mean().backward()  # SEEN
        optimizer.step()
        optimizer.zero_grad()
