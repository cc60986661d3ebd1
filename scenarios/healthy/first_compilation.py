"""Rank 0 has a cold cache and compiles for a while before its first step; its peers do not."""

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Expect, scenario


class KernelCache:
    """Compiles what it does not have."""

    def __init__(self, warm):
        self.kernels = {"matmul"} if warm else set()

    def get(self, name):
        if name not in self.kernels:
            for _ in range(20):
                torch.linalg.qr(torch.randn(300, 300))
            self.kernels.add(name)
        return torch.relu


@scenario(world_size=4, expect=Expect.healthy(), reference="karpathy/nanochat#722")
def first_compilation(job):
    cache = KernelCache(warm=job.rank != 0)
    model = DistributedDataParallel(torch.nn.Linear(64, 8).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in job.steps(600):
        kernel = cache.get("matmul")
        with job.section("forward_backward"):
            kernel(model(job.batch(64))).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
