"""Rank 0 keeps the store of the results and leaves before the others have put theirs there."""

import os
import time

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


def open_store(job):
    """A store that rank 0 keeps; where it is, the launcher's own store tells, if it has one."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if "TORCHELASTIC_USE_AGENT_STORE" not in os.environ:
        port += 1  # the process group's own store takes the other
        return dist.TCPStore(host, port, is_master=job.rank == 0, wait_for_workers=False)
    agreed = dist.TCPStore(host, port)
    if job.rank == 0:
        store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)
        agreed.set("results", str(store.port))
        return store
    return dist.TCPStore(host, int(agreed.get("results")))


def evaluate(seed):
    """A second of work that rank 0 has no part in."""
    matrix = torch.randn(400, 400, generator=torch.Generator().manual_seed(seed))
    for _ in range(60):
        matrix = torch.linalg.qr(matrix).Q
    return matrix.sum().item()


@scenario(
    world_size=4,
    expect=Expect(Cause.STORE_LOST, culprits={0}, location=None),
    reference="xorbitsai/inference#4421",
    zoo="C9",
    backends=("gloo",),
)
def store_lost(job):
    store = open_store(job)
    dist.init_process_group("gloo")
    loss = torch.ones(1)
    for _ in job.steps(20):
        dist.all_reduce(loss)
    dist.destroy_process_group()
    if job.rank == 0:
        while not job.faulty and store.add("evaluated", 0) < job.world_size - 1:  # FAULT
            time.sleep(0.05)
        return
    score = evaluate(job.rank)
    store.set(f"score {job.rank}", str(score))  # SEEN
    store.add("evaluated", 1)  # SEEN
