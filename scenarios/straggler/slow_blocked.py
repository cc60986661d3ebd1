"""Rank 2 asks a service about each batch, and is answered later than its peers."""

import socket
import threading
import time

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


def serve(connection, seconds):
    while connection.recv(1):
        time.sleep(seconds)
        connection.send(b"1")


@scenario(
    world_size=4,
    expect=Expect(Cause.SLOW_COMPUTE, culprits={2}),
    reference="arXiv:2505.05713",
)
def slow_blocked(job):
    service, client = socket.socketpair()
    seconds = 0.050 if job.faulty and job.rank == 2 else 0.030  # FAULT
    threading.Thread(target=serve, args=(service, seconds), daemon=True).start()
    gradient = torch.ones(1000)
    # So long that waits for a processor, at a load of 9 on two, do not hide the difference.  The
    # recorder looks twenty times a second: of some hundred samples a peer's share at the line is
    # off by a tenth now and then, and half of the difference has to be seen there.
    for _ in job.steps(160):
        client.send(b"0")
        client.recv(1)  # SEEN
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()
        job.synchronize()
