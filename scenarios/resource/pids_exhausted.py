"""A thread is started for every log record, and rank 1's container allows only so many."""

import threading

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, LimitTasks, scenario


def log_in_background(record, done):
    """Sends the record and stays around until all of them have been sent."""
    threading.Thread(target=done.wait, daemon=True, name=f"log {record}").start()  # SEEN


@scenario(
    world_size=4,
    expect=Expect(Cause.PIDS_EXHAUSTED, culprits={1}),
    reference="PASSIONLab/OpenEquivariance#207",
    zoo="B5",
    faults=[LimitTasks(rank=1, tasks=48, at_step=5)],
    needs=("cgroup_pids",),
)
def pids_exhausted(job):
    model = DistributedDataParallel(torch.nn.Linear(64, 8).to(job.device))
    done = threading.Event()
    for step in job.steps(80):
        model(job.batch(64)).sum().backward()
        model.zero_grad()
        log_in_background(step, done)
    done.set()
