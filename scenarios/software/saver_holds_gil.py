"""Rank 2's checkpoint thread compresses in a C library that keeps the interpreter's lock."""

import ctypes
import queue
import threading

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, scenario


class Saver(threading.Thread):
    """Writes what it is given beside the training; ``library`` keeps the lock while it works."""

    def __init__(self):
        super().__init__(daemon=True, name="saver")
        self.library = ctypes.PyDLL(None)
        self.orders: queue.SimpleQueue[int] = queue.SimpleQueue()

    def run(self):
        while True:
            self.compress(self.orders.get())

    def compress(self, microseconds):
        self.library.usleep(1)
        self.library.sleep(microseconds // 1_000_000)  # SEEN


@scenario(
    world_size=4,
    expect=Expect(Cause.GIL_HELD, culprits={2}, group="default_pg"),
    reference="pytorch/pytorch#147039",
    zoo="D17",
    packs="checkpoint",
)
def saver_holds_gil(job):
    saver = Saver()
    saver.start()
    model = DistributedDataParallel(torch.nn.Linear(64, 8).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps(20):
        with job.section("forward_backward"):
            model(job.batch(64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        wedged = job.faulty and job.rank == 2 and step == 5  # FAULT
        saver.orders.put(3_600_000_000 if wedged else 10)
