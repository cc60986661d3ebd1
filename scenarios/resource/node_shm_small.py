"""Rank 1's container keeps too little shared memory for the batches of its loader's workers."""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from hanglab.harness import Cause, Expect, ShrinkShm, scenario


class Images(Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        return torch.full((3, 128, 128), float(index))


@scenario(
    world_size=2,
    expect=Expect(Cause.SHM_EXHAUSTED, culprits={1}),
    reference="pytorch/pytorch#1355",
    zoo="A1",
    faults=[ShrinkShm(rank=1, kibibytes=1024, at_step=-1)],
    needs=("docker", "outside_processes"),
)
def node_shm_small(job):
    total = torch.zeros(1)
    for _ in job.steps(3):
        dist.all_reduce(total)
    loader = DataLoader(Images(), batch_size=8, num_workers=1)
    network = torch.nn.Conv2d(3, 8, 3)
    for images in loader:  # SEEN
        network(images).square().mean().backward()
        dist.all_reduce(network.weight.grad)
