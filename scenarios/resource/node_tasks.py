"""Rank 1 starts a thread a step that stays, in a container that allows only a few more."""

import threading

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, NodeTasks, scenario


@scenario(
    world_size=2,
    expect=Expect(Cause.PIDS_EXHAUSTED, culprits={1}),
    reference="PASSIONLab/OpenEquivariance#207",
    zoo="B5",
    faults=[NodeTasks(rank=1, spare=12, at_step=5)],
    needs=("docker", "outside_processes"),
)
def node_tasks(job):
    done = threading.Event()
    total = torch.ones(1)
    for _ in job.steps(5000 if job.faulty else 40):
        dist.all_reduce(total)
        if job.rank == 1:
            threading.Thread(target=done.wait, daemon=True).start()  # SEEN
    done.set()
