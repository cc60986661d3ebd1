"""Actors join a group with each engine, one engine after the other; rank 1 begins with the last.

Groups are told apart by their number: rank 1 is in one with members other than its peers think.
"""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


@scenario(
    world_size=4,
    expect=Expect(Cause.GROUP_CREATION, culprits={1}),
    reference="THUDM/slime#2331",
    zoo="H11",
    packs="rl",
)
def actors_joined_in_turns(job):
    dist.init_process_group(job.backend)
    weights = torch.zeros(64, device=job.device)
    engines = list(range(2, job.world_size))
    if job.faulty and job.rank == 1:
        engines.reverse()  # FAULT
    for _ in job.steps(5):
        dist.all_reduce(weights)
    groups = {}
    for engine in engines:
        groups[engine] = dist.new_group([0, 1, engine], group_desc="update")  # SEEN
    for _ in job.steps(5):
        for engine in sorted(engines):
            if job.rank in (0, 1, engine):
                dist.broadcast(weights, src=0, group=groups[engine])  # SEEN
    dist.destroy_process_group()
