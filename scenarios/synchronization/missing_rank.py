"""Rank 2 uploads its part of the checkpoint and waits for an acknowledgement that never comes."""

import socket
import threading

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, scenario


class ObjectStore:
    """The client of a storage service: one request, one acknowledgement, no timeout."""

    def __init__(self, loses):
        self.connection, service = socket.socketpair()
        self.loses = loses
        threading.Thread(target=self.serve, args=(service,), daemon=True).start()

    def serve(self, service):
        while request := service.recv(64):
            if request != self.loses:
                service.sendall(b"stored")

    def put(self, key):
        self.connection.sendall(key)
        return self.connection.recv(64)  # SEEN


@scenario(
    world_size=4,
    expect=Expect(Cause.MISSING_RANK, culprits={2}, group="default_pg"),
    reference="ByteDance-Seed/VeOmni#1176",
    packs=("training", "checkpoint"),
)
def missing_rank(job):
    loses = b"step-5" if job.faulty and job.rank == 2 else b""  # FAULT
    store = ObjectStore(loses)
    model = DistributedDataParallel(torch.nn.Linear(64, 8).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps(20):
        with job.section("forward_backward"):
            model(job.batch(64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        store.put(b"step-%d" % step)
