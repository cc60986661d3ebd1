"""A build of rank 2's kernels was killed a day ago, and the file that marks it was left behind."""

import os
import tempfile
import time

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.file_baton import FileBaton

from hanglab.harness import Cause, Expect, scenario


class KernelCache:
    """Kernels that are built once on each host, as torch.utils.cpp_extension does."""

    def __init__(self, folder):
        self.folder = folder

    def load(self, name):
        path = os.path.join(self.folder, name)
        baton = FileBaton(f"{path}.lock")
        if baton.try_acquire():
            try:
                with open(path, "w") as file:
                    file.write(name)
            finally:
                baton.release()
        else:
            baton.wait()  # SEEN
        return torch.relu


def leave_lock_of_yesterday(path):
    open(path, "x").close()
    os.utime(path, (time.time() - 86_400,) * 2)


@scenario(
    world_size=4,
    expect=Expect(Cause.MISSING_RANK, culprits={2}, group="default_pg"),
    reference="pytorch/pytorch#189245",
    zoo="B8",
)
def stale_build_lock(job):
    with tempfile.TemporaryDirectory() as folder:
        cache = KernelCache(folder)
        model = DistributedDataParallel(torch.nn.Linear(64, 8).to(job.device))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in job.steps(20):
            if job.faulty and job.rank == 2 and step == 5:
                leave_lock_of_yesterday(os.path.join(folder, f"relu-{step}.lock"))  # FAULT
            activation = cache.load(f"relu-{step}")
            with job.section("forward_backward"):
                activation(model(job.batch(64))).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
