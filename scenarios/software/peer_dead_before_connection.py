"""Rank 2 ends before its peers first talk to it: connections are made late, and to nobody."""

import os

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


@scenario(
    world_size=4,
    world_sizes=(4,),
    backends=("gloo",),
    expect=Expect(Cause.CRASH, culprits={2}),
    reference="pytorch/gloo#520",
    zoo="H21",
)
def peer_dead_before_connection(job):
    os.environ["TORCH_GLOO_LAZY_INIT"] = "1"
    dist.init_process_group("gloo")
    hidden = torch.zeros(64)
    pairs = [dist.new_group(ranks, group_desc="pair") for ranks in ([0, 1], [2, 3])]
    for step in job.steps(10):
        if job.faulty and job.rank == 2 and step == 5:
            os._exit(3)  # FAULT
        if step < 5 and job.rank < 2:
            dist.all_reduce(hidden, group=pairs[0])
        elif step >= 5:
            dist.all_reduce(hidden)
    dist.destroy_process_group()
