"""Rank 2 polls for a compiled kernel whose builder has given up, and never stops polling."""

import threading

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, scenario


class KernelCache:
    """Builds kernels in a thread of its own; ``get`` spins until the build is there."""

    def __init__(self):
        self.built = {}

    def request(self, name, dies):
        threading.Thread(target=self.build, args=(name, dies), daemon=True).start()

    def build(self, name, dies):
        if not dies:
            self.built[name] = torch.relu

    def get(self, name):
        while True:  # SEEN
            if name in self.built:  # SEEN
                return self.built[name]


@scenario(
    world_size=4,
    expect=Expect(Cause.BUSY_LOOP, culprits={2}, group="default_pg"),
    reference="SemiAnalysisAI/InferenceX#1360",
    zoo="B9",
)
def busy_loop(job):
    cache = KernelCache()
    model = DistributedDataParallel(torch.nn.Linear(64, 8).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps(20):
        name = f"relu-{step}"
        cache.request(name, dies=job.faulty and job.rank == 2 and step == 5)  # FAULT
        activation = cache.get(name)
        with job.section("forward_backward"):
            activation(model(job.batch(64))).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
