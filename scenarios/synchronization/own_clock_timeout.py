"""Each tensor-parallel rank drops late requests by its own clock; rank 1's runs ahead.

Its batch is empty where its peers still have a request, so it skips their forward pass.
"""

import time

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario

LIMIT_S = 60.0


class Scheduler:
    """Takes the requests that rank 0 received, and forms the next batch of those still in time."""

    def __init__(self, clock, device):
        self.clock = clock
        self.device = device

    def next_batch(self, received):
        arrivals = torch.tensor([received], dtype=torch.float64, device=self.device)
        dist.broadcast(arrivals, src=0)  # SEEN
        return [one for one in arrivals.tolist() if self.clock() - one < LIMIT_S]


def forward(layers, batch, features):
    """One pass whose layers are split over the ranks: each sums what its part gives."""
    hidden = features[: len(batch)]
    for layer in layers:
        hidden = layer(hidden)
        dist.all_reduce(hidden)
    return hidden


@scenario(
    world_size=4,
    expect=Expect(Cause.SKIPPED_COLLECTIVE, culprits={1}, group="default_pg"),
    reference="sgl-project/sglang#27221",
    zoo="H1",
    packs="serving",
)
def own_clock_timeout(job):
    ahead = 45.0 if job.faulty and job.rank == 1 else 0.0  # FAULT
    scheduler = Scheduler(lambda: time.time() + ahead, job.device)
    layers = [torch.nn.Linear(64, 64).to(job.device) for _ in range(2)]
    with torch.no_grad():
        for step in job.steps(20):
            waited = 30.0 if step == 9 else 1.0  # a request that has queued for half a minute
            batch = scheduler.next_batch(time.time() - waited)
            if batch:
                forward(layers, batch, job.batch(64))
