"""Rank 1 aborts its communicators and waits to be told what is next; nobody tells its peers."""

import socket

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


class Controller:
    """Tells ranks to go on, or to begin anew; of a restart it says nothing."""

    def __init__(self):
        self.connection, self.service = socket.socketpair()

    def ask(self, restart):
        if not restart:
            self.service.sendall(b"go on")
        return self.connection.recv(5)  # SEEN


@scenario(
    world_size=4,
    backends=("nccl", "nccl-emulated"),
    expect=Expect(Cause.MISSING_RANK, culprits={1}, group="default_pg"),
    reference="NVIDIA/nccl#1013",
)
def abort_on_one_rank(job):
    controller = Controller()
    model = torch.nn.Linear(64, 8).to(job.device)
    for step in job.steps(20):
        with job.section("forward_backward"):
            loss = model(job.batch(64)).square().mean()
            loss.backward()
        dist.all_reduce(model.weight.grad)
        model.zero_grad()
        loss.item()
        gives_up = job.faulty and job.rank == 1 and step == 5
        if gives_up:
            dist.distributed_c10d._get_default_group().abort()  # FAULT
        controller.ask(restart=gives_up)
