"""Rank 2's image decoder, a C library, is handed a pointer to a buffer that has gone."""

import ctypes

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, Status, scenario


class Decoder:
    """Copies samples out of the buffer of a C library."""

    def __init__(self, size):
        self.buffer = ctypes.create_string_buffer(size)
        self.address = ctypes.addressof(self.buffer)

    def release(self):
        del self.buffer
        self.address = 0

    def decode(self, size):
        data = bytearray(size)
        ctypes.memmove((ctypes.c_char * size).from_buffer(data), self.address, size)
        return torch.frombuffer(data, dtype=torch.uint8).float().view(-1, 64)


@scenario(
    world_size=4,
    expect=Expect(
        Cause.CRASH,
        culprits={2},
        # Seen on the emulated device: the Case is taken at the exit, before peers stand still.
        status={
            "gloo": Status.FAILED,
            "nccl": Status.HUNG,
            "nccl-emulated": Status.FAILED,
        },
        location=None,
    ),
    reference="pytorch/pytorch#123678",
)
def crash(job):
    decoder = Decoder(64 * 32)
    model = DistributedDataParallel(torch.nn.Linear(64, 8).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps(20):
        if job.faulty and job.rank == 2 and step == 5:  # FAULT
            decoder.release()
        batch = decoder.decode(64 * 32).to(job.device)
        with job.section("forward_backward"):
            model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
