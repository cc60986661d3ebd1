"""Rollout ranks ask the store for the next version of the weights until the trainers put it."""

import os
import threading

import torch
import torch.distributed as dist

from hanglab.harness import Expect, scenario


@scenario(
    world_size=4,
    world_sizes=(4,),
    expect=Expect.healthy(),
    reference="PrimeIntellect-ai/prime-rl#1667",
    packs="rl",
)
def polls_the_store(job):
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    trainers = dist.new_group([0, 1], group_desc="trainers")
    rollout = dist.new_group([2, 3], group_desc="rollout")
    model = torch.nn.Linear(64, 8).to(job.device)
    for version in job.steps(6):
        if job.rank < 2:
            for _ in range(10):
                model(job.batch(64)).square().mean().backward()
                dist.all_reduce(model.weight.grad, group=trainers)
                model.zero_grad()
                threading.Event().wait(0.01)
            if job.rank == 0:
                store.set(f"version/{version}", "ready")
        else:
            while not store.check([f"version/{version}"]):
                threading.Event().wait(0.01)
            dist.barrier(group=rollout)
        dist.broadcast(model.weight.data, src=0)
