"""Rank 0 is to keep the store at a port that an earlier run's server still holds."""

import os
import socket
from datetime import timedelta

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, Status, scenario


def free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


@scenario(
    world_size=4,
    expect=Expect(Cause.RENDEZVOUS, culprits={0}, status=Status.FAILED),
    reference="pytorch/pytorch#129367",
    zoo="C10",
    backends=("gloo",),
)
def rendezvous_port_taken(job):
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    # Under torchrun its agent keeps the store.
    keeps = job.rank == 0 and "TORCHELASTIC_USE_AGENT_STORE" not in os.environ
    agreed = dist.TCPStore(host, port, is_master=keeps)
    if job.rank == 0:
        server = socket.socket()
        server.bind(("", 0))
        server.listen()
        taken = server.getsockname()[1]
        agreed.set("port", str(taken if job.faulty else free_port()))  # FAULT
    address = f"tcp://{host}:{int(agreed.get('port'))}"
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    dist.init_process_group(  # SEEN
        "gloo",
        init_method=address,
        rank=job.rank,
        world_size=job.world_size,
        timeout=timedelta(seconds=30),
    )
    total = torch.ones(1)
    for _ in job.steps(10):
        dist.all_reduce(total)
    dist.destroy_process_group()
