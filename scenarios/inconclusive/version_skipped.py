"""Trainer and rollout hand versions on by files, and the trainer leaves one out: both poll.

No collective is open anywhere, and no rank does anything that a watchdog could see.
"""

import os
import tempfile
import time

import torch
import torch.distributed as dist

from hanglab.harness import Expect, scenario


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.02)


def write(path):
    open(path, "w").close()


@scenario(
    world_size=4,
    world_sizes=(4,),
    backends=("gloo",),
    expect=Expect.inconclusive(),
    reference="PrimeIntellect-ai/prime-rl#1667",
    zoo="H12",
    packs="rl",
)
def version_skipped(job):
    folder = [tempfile.mkdtemp() if job.rank == 0 else ""]
    dist.broadcast_object_list(folder, src=0)
    groups = [dist.new_group(ranks, group_desc="world") for ranks in ([0, 1], [2, 3])]
    world = groups[job.rank // 2]
    weights = torch.zeros(64)
    for version in job.steps(12):
        weights_path = os.path.join(folder[0], f"weights-{version}")
        rollout_path = os.path.join(folder[0], f"rollout-{version}")
        if job.rank == 0 and not (job.faulty and version == 6):  # FAULT
            write(weights_path)
        if job.rank < 2:
            wait_for(rollout_path)
        else:
            wait_for(weights_path)
            dist.all_reduce(weights, group=world)
            if job.rank == 2:
                write(rollout_path)
        dist.all_reduce(weights, group=world)
