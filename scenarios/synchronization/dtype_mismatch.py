"""Rank 1 keeps its gradients in half precision after an overflow, while its peers have not."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


def reduce_gradient(gradient, half):
    """Sums a gradient over all ranks, in half precision where it need not be exact."""
    reduced = gradient.half() if half else gradient.clone()
    dist.all_reduce(reduced)  # SEEN
    return reduced.to(gradient.dtype)


@scenario(
    world_size=4,
    expect=Expect(Cause.DTYPE_MISMATCH, culprits={1}, group="default_pg"),
    reference="NVIDIA/nccl#147",
    zoo="E5",
)
def dtype_mismatch(job):
    model = torch.nn.Linear(64, 64).to(job.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps(20):
        with job.section("forward_backward"):
            model(job.batch(64)).square().mean().backward()
        half = job.faulty and job.rank == 1 and step == 5  # FAULT
        for parameter in model.parameters():
            parameter.grad = reduce_gradient(parameter.grad, half) / job.world_size
        optimizer.step()
        optimizer.zero_grad()
