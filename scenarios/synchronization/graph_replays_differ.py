"""Rank 1 replays its captured step once less; the buffers have no entry of any replay."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


@scenario(
    world_size=3,
    backends=("nccl", "nccl-emulated"),
    expect=Expect(Cause.SKIPPED_COLLECTIVE, culprits={1}),
    zoo="D8",
    reference="https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs",
)
def graph_replays_differ(job):
    gradient, total = torch.ones(64, device=job.device), torch.zeros(64, device=job.device)
    dist.all_reduce(gradient)  # a communicator must not be made while a graph is captured
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(gradient)
        total.add_(gradient)
    for step in job.steps(20):
        if not (job.faulty and job.rank == 1 and step == 5):  # FAULT
            graph.replay()
    dist.barrier()  # SEEN
