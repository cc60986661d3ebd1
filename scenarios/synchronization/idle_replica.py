"""Rank 2 has no request, so it waits for one instead of taking part in its peers' exchange.

Experts are spread over all replicas: who has no tokens has to make an empty pass.
"""

import queue
import socket
import threading

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


class Replica:
    """A replica of a model whose experts live on all ranks."""

    def __init__(self, job):
        self.requests: queue.Queue[torch.Tensor] = queue.Queue()
        self.client, connection = socket.socketpair()
        threading.Thread(target=self.receive, args=(connection,), daemon=True).start()
        self.size, self.device = job.world_size, job.device
        self.expert = torch.nn.Linear(64, 64).to(job.device)

    def receive(self, connection):
        while request := connection.recv(1):
            self.requests.put(torch.randn(2 * self.size, 64, device=self.device) * request[0])

    def forward(self, tokens):
        mine = torch.empty_like(tokens)
        dist.all_to_all_single(mine, tokens)
        dist.all_to_all_single(tokens, self.expert(mine))
        return tokens

    def run_once(self):
        tokens = self.requests.get()  # SEEN
        return self.forward(tokens)


@scenario(
    world_size=4,
    expect=Expect(Cause.MISSING_RANK, culprits={2}, group="default_pg"),
    reference="vllm-project/vllm#51984",
    zoo="E12",
    packs="serving",
)
def idle_replica(job):
    replica = Replica(job)
    with torch.no_grad():
        for step in job.steps(20):
            if not (job.faulty and job.rank == 2 and step == 5):  # FAULT
                replica.client.sendall(b"\x01")
            replica.run_once()
