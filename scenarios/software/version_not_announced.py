"""Rollout ranks ask the store for the next version of the weights, which rank 0 does not announce.

The trainers go on to hand the weights out, in a collective that the rollout ranks do not reach.
"""

import os
import threading

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


@scenario(
    world_size=4,
    world_sizes=(4,),
    backends=("gloo",),
    expect=Expect(Cause.PYTHON_DEADLOCK, culprits={0}),
    reference="PrimeIntellect-ai/prime-rl#1667",
    packs="rl",
)
def version_not_announced(job):
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    trainers = dist.new_group([0, 1], group_desc="trainers")
    rollout = dist.new_group([2, 3], group_desc="rollout")
    model = torch.nn.Linear(64, 8)
    for version in job.steps(12):
        if job.rank < 2:
            model(job.batch(64)).square().mean().backward()
            dist.all_reduce(model.weight.grad, group=trainers)
            model.zero_grad()
            if job.rank == 0 and not (job.faulty and version == 6):  # FAULT
                store.set(f"version/{version}", "ready")
        else:
            while not store.check([f"version/{version}"]):
                threading.Event().wait(0.01)
            dist.barrier(group=rollout)
        dist.broadcast(model.weight.data, src=0)  # SEEN
