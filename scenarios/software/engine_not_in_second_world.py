"""The trainer opens a second world with its engines to sync weights; rank 2 never joins it.

Trainers of reinforcement learning make such a group beside the default one, with ranks of its own.
"""

import queue
import socket

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from hanglab.harness import Cause, Expect, scenario


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def second_world(port, rank, size):
    """As OpenRLHF's and vLLM's helpers make it: a group that is in no default one."""
    store = dist.TCPStore("127.0.0.1", port, size, rank == 0, wait_for_workers=False)
    group, _ = distributed_c10d._new_process_group_helper(
        size,
        rank,
        [],
        "gloo",
        dist.PrefixStore("weights", store),
        group_name=distributed_c10d.GroupName("weights"),
        timeout=distributed_c10d.default_pg_timeout,
    )
    distributed_c10d._world.pg_group_ranks[group] = {member: member for member in range(size)}
    return group


@scenario(
    world_size=4,
    world_sizes=(4,),
    backends=("gloo",),
    expect=Expect(Cause.PYTHON_DEADLOCK, culprits={2}),
    reference="allenai/open-instruct#1311",
    zoo="H13",
    packs="rl",
)
def engine_not_in_second_world(job):
    port = [free_port() if job.rank == 0 else 0]
    dist.broadcast_object_list(port, src=0)
    requests: queue.Queue[str] = queue.Queue()
    hidden = torch.zeros(64)
    for step in job.steps(10):
        dist.all_reduce(hidden)
        if step == 5:
            if not (job.faulty and job.rank == 2):  # FAULT
                requests.put("init_weights_group")
            requests.get()  # SEEN
            group = second_world(port[0], job.rank, job.world_size)
    dist.broadcast(hidden, src=0, group=group)
