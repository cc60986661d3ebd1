"""A serving loop drains its queue of weight updates before each pass; rank 2 has one left over.

It is in one more round of the drain, a broadcast, while its peers have begun the forward pass.
"""

import queue

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


class Engine:
    """A rank of a serving engine: takes over new weights, then computes a batch."""

    def __init__(self, device):
        self.model = torch.nn.Linear(64, 64).to(device)
        self.updates: queue.SimpleQueue[str] = queue.SimpleQueue()

    def drain(self):
        while not self.updates.empty():
            self.updates.get()
            dist.broadcast(self.model.bias.data, src=0)  # SEEN

    def compute(self, batch):
        hidden = self.model(batch)
        dist.all_reduce(hidden)
        return hidden


@scenario(
    world_size=4,
    expect=Expect(Cause.COLLECTIVE_MISMATCH, culprits={2}, group="default_pg"),
    reference="sgl-project/sglang#30760",
    zoo="H2",
    packs=("serving", "rl"),
)
def queue_drained_unevenly(job):
    engine = Engine(job.device)
    with torch.no_grad():
        for step in job.steps(20):
            engine.updates.put(f"version {step}")
            if job.faulty and job.rank == 2 and step == 5:
                engine.updates.put("a retry that only this rank received")  # FAULT
            engine.drain()
            engine.compute(job.batch(64))
