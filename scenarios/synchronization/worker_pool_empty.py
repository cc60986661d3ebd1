"""Rank 1 waits for a result of a worker process that has died without one."""

import multiprocessing
import os

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, scenario


def tokenize(tasks, results, bad):
    """A worker: a text in, its tokens out."""
    for step, text in iter(tasks.get, None):
        if step == bad:
            os._exit(1)  # a native tokenizer gives up in this way
        results.put([hash(word) % 1000 for word in text.split()])


@scenario(
    world_size=4,
    expect=Expect(Cause.MISSING_RANK, culprits={1}, group="default_pg"),
    reference="pytorch/pytorch#194943",
    zoo="D19",
)
def worker_pool_empty(job):
    forking = multiprocessing.get_context("fork")
    tasks, results = forking.Queue(), forking.Queue()
    bad = 5 if job.faulty and job.rank == 1 else None  # FAULT
    worker = forking.Process(target=tokenize, args=(tasks, results, bad), daemon=True)
    worker.start()
    model = DistributedDataParallel(torch.nn.EmbeddingBag(1000, 8).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps(20):
        tasks.put((step, f"the text of step {step} has some words"))
        tokens = torch.tensor([results.get()], device=job.device)  # SEEN
        with job.section("forward_backward"):
            model(tokens).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    tasks.put(None)
    worker.join()
