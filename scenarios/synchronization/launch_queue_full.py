"""Rank 1 waits for an upload; its peers launch ahead until their queues are full, and stand there.

Their hosts stand in a launch many steps after the operation that their devices wait in.
"""

import socket

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


class Uploads:
    """A storage service that acknowledges every upload but one."""

    def __init__(self, loses):
        self.connection, self.service = socket.socketpair()
        self.loses = loses

    def put(self, step):
        if step != self.loses:
            self.service.sendall(b"stored")
        return self.connection.recv(6)  # SEEN


@scenario(
    world_size=2,
    backends=("nccl", "nccl-emulated"),
    expect=Expect(Cause.MISSING_RANK, culprits={1}, group="default_pg"),
    reference="ByteDance-Seed/VeOmni#1176",
)
def launch_queue_full(job):
    uploads = Uploads(loses=5 if job.faulty and job.rank == 1 else None)  # FAULT
    statistics = [torch.ones(4, device=job.device) for _ in range(32)]
    for step in job.steps(60):
        for tensor in statistics:
            dist.all_reduce(tensor, dist.ReduceOp.AVG)
        uploads.put(step)
