"""A loader worker of rank 1 reads from a remote shard that stops delivering."""

import os

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

from hanglab.harness import Cause, Expect, scenario

RECORD = 512 * 4


class RemoteShard(IterableDataset):
    """Streams records over a connection, here a pipe that the far side fills record by record."""

    def __init__(self, records, stalls_at):
        self.records = records
        self.stalls_at = stalls_at

    def __iter__(self):
        connection, far_side = os.pipe()
        for record in range(self.records):
            if record != self.stalls_at:  # FAULT
                os.write(far_side, bytes(RECORD))
            data = bytearray(os.read(connection, RECORD))  # SEEN
            yield torch.frombuffer(data, dtype=torch.float32)


@scenario(
    world_size=4,
    expect=Expect(Cause.LOADER_STUCK, culprits={1}, group="default_pg"),
    reference="pytorch/torchtitan#3338",
    zoo="A5",
)
def loader_stuck(job):
    stalls_at = 5 * 128 if job.faulty and job.rank == 1 else None
    loader = DataLoader(RemoteShard(12 * 128, stalls_at), batch_size=128, num_workers=1)
    layers = [torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _, batch in zip(job.steps(12), loader, strict=True):
        with job.section("forward_backward"):
            model(batch.to(job.device)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
