"""Rank 1 waits for an upload with nothing on its device: its peers' watchdogs speak, its own never.

A watchdog watches what was launched.  So the peers end at their time limit, and the rank that
they waited for lives on without a word.
"""

import socket
from datetime import timedelta

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, Status, scenario


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
    world_size=4,
    backends=("nccl", "nccl-emulated"),
    expect=Expect(Cause.MISSING_RANK, culprits={1}, status=Status.FAILED, group="default_pg"),
    hang_after=15.0,
    reference="pytorch/pytorch#118369",
    packs=("checkpoint", "nccl"),
)
def idle_watchdog(job):
    uploads = Uploads(loses=5 if job.faulty and job.rank == 1 else None)  # FAULT
    dist.init_process_group("nccl", timeout=timedelta(seconds=3))
    for step in job.steps(20):
        total = torch.ones(4, device=job.device)
        dist.all_reduce(total)
        total.sum().item()
        uploads.put(step)
    dist.destroy_process_group()
