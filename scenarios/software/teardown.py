"""Rank 1 has trained to the end, but its metrics thread is never told to stop."""

import queue
import threading

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, scenario


class Metrics:
    """Writes losses in a thread that the interpreter waits for at its end."""

    def __init__(self):
        self.losses: queue.SimpleQueue[float | None] = queue.SimpleQueue()
        self.written = []
        threading.Thread(target=self.write, name="metrics").start()

    def write(self):
        while (loss := self.losses.get()) is not None:  # SEEN
            self.written.append(loss)

    def close(self):
        self.losses.put(None)


@scenario(
    world_size=4,
    expect=Expect(Cause.TEARDOWN, culprits={1}),
    reference="modelscope/ms-swift#7992",
    zoo="D6",
)
def teardown(job):
    metrics = Metrics()
    model = DistributedDataParallel(torch.nn.Linear(64, 8).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in job.steps(20):
        with job.section("forward_backward"):
            loss = model(job.batch(64)).square().mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        metrics.losses.put(loss.item())
    if not (job.faulty and job.rank == 1):  # FAULT
        metrics.close()
