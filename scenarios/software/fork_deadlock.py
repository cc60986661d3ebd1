"""Rank 2 forks a tokenizer while a thread of its own holds the tokenizer's lock."""

import multiprocessing
import threading

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, scenario


class Tokenizer:
    """Its cache is shared with a thread that refreshes it, under a lock."""

    def __init__(self):
        self.lock = threading.Lock()
        self.cache = {}

    def refresh(self, started, finish):
        with self.lock:
            started.set()
            finish.wait()
            self.cache.clear()

    def encode(self, text):
        with self.lock:
            self.cache.setdefault(text, [hash(word) for word in text.split()])


@scenario(
    world_size=4,
    expect=Expect(Cause.FORK_DEADLOCK, culprits={2}, group="default_pg"),
    reference="pytorch/pytorch#75147",
    zoo="A2",
)
def fork_deadlock(job):
    tokenizer, forking = Tokenizer(), multiprocessing.get_context("fork")
    model = DistributedDataParallel(torch.nn.Linear(64, 8).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps(8):
        with job.section("forward_backward"):
            model(job.batch(64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        started, finish = threading.Event(), threading.Event()
        threading.Thread(target=tokenizer.refresh, args=(started, finish)).start()
        started.wait()
        if not (job.faulty and job.rank == 2 and step == 5):  # FAULT
            finish.set()
            with tokenizer.lock:
                pass
        encoder = forking.Process(target=tokenizer.encode, args=(f"step {step}",))
        encoder.start()
        finish.set()
        encoder.join()  # SEEN
