"""A serving engine without requests: its first rank says so again and again, its workers wait.

Workers wait for the next batch inside a broadcast, for longer than a training job ever may.
"""

import queue
import threading

import torch
import torch.distributed as dist

from hanglab.harness import Expect, scenario


def clients(requests):
    """A burst of requests, four seconds without any, and another burst."""
    for _ in range(5):
        requests.put(8)
    threading.Event().wait(4.0)
    for _ in range(5):
        requests.put(8)
    requests.put(0)


def next_size(requests):
    while True:
        try:
            return requests.get(timeout=0.5)
        except queue.Empty:
            print("No available shared memory broadcast block found in 0.5 second.", flush=True)


@scenario(
    world_size=4,
    expect=Expect.healthy(),
    reference="vllm-project/vllm#43420",
    packs="serving",
)
def idle_engine(job):
    requests: queue.Queue[int] = queue.Queue()
    if job.rank == 0:
        threading.Thread(target=clients, args=(requests,), daemon=True).start()
    layer = torch.nn.Linear(64, 64).to(job.device)
    size = torch.ones(1, dtype=torch.int64, device=job.device)
    while size.item():
        if job.rank == 0:
            size.fill_(next_size(requests))
        dist.broadcast(size, src=0)
        hidden = layer(job.batch(64, rows=max(1, int(size.item()))))
        dist.all_reduce(hidden.detach())
