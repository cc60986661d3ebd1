"""Rank 1 asks a C library for its license, and the binding keeps the GIL while it waits."""

import ctypes

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, scenario


class LicenseClient:
    """A binding that was written without releasing the interpreter's lock."""

    def __init__(self):
        self.library = ctypes.PyDLL(None)

    def check(self, seconds):
        self.library.usleep(1000)
        self.library.sleep(seconds)  # SEEN


@scenario(
    world_size=4,
    expect=Expect(Cause.GIL_HELD, culprits={1}, group="default_pg"),
    reference="pytorch/pytorch#117312",
    zoo="D7",
)
def gil_held(job):
    client = LicenseClient()
    model = DistributedDataParallel(torch.nn.Linear(64, 8).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps(20):
        with job.section("forward_backward"):
            model(job.batch(64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        server_answers = not (job.faulty and job.rank == 1 and step == 5)  # FAULT
        client.check(0 if server_answers else 3600)
