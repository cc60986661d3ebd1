"""Rank 1 has a /dev/shm that is too small for the batches of its loader's workers."""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from hanglab.harness import Cause, Expect, scenario


class Images(Dataset):
    def __len__(self):
        return 200

    def __getitem__(self, index):
        return torch.full((3, 128, 128), float(index))


@scenario(
    world_size=4,
    expect=Expect(Cause.SHM_EXHAUSTED, culprits={1}),
    reference="pytorch/pytorch#1355",
    zoo="A1",
    needs=("private_mounts",),
)
def shm_exhausted(job):
    if job.rank == 1:
        job.disk(mebibytes=2 if job.faulty else 256, at="/dev/shm")  # FAULT
    loader = DataLoader(Images(), batch_size=8, num_workers=1)
    network = torch.nn.Conv2d(3, 8, 3)
    for images in loader:  # SEEN
        network(images).square().mean().backward()
        dist.all_reduce(network.weight.grad)
