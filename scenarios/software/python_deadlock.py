"""Rank 1's checkpoint thread and its training loop take the same two locks in opposite order."""

import threading

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, scenario


class Checkpoints:
    """Saves weights in the background; ``weights`` and ``index`` are locks."""

    def __init__(self, model):
        self.model = model
        self.weights, self.index = threading.Lock(), threading.Lock()
        self.saved = []

    def save(self, step, index_is_held):
        with self.weights:
            copy = {name: value.clone() for name, value in self.model.state_dict().items()}
            index_is_held.wait()
            with self.index:
                self.saved.append((step, copy))

    def prune(self, index_is_held, keep=2):
        with self.index:
            index_is_held.set()
            with self.weights:  # SEEN
                del self.saved[:-keep]


@scenario(
    world_size=4,
    expect=Expect(Cause.PYTHON_DEADLOCK, culprits={1}, group="default_pg"),
    reference="mosaicml/streaming#307",
    zoo="A7",
)
def python_deadlock(job):
    model = DistributedDataParallel(torch.nn.Linear(64, 8).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    checkpoints = Checkpoints(model)
    for step in job.steps(20):
        with job.section("forward_backward"):
            model(job.batch(64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        index_is_held = threading.Event()
        saver = threading.Thread(target=checkpoints.save, args=(step, index_is_held))
        saver.start()
        if not (job.faulty and job.rank == 1 and step == 5):  # FAULT
            index_is_held.set()
            saver.join()
        checkpoints.prune(index_is_held)
