"""Rank 2 takes the largest loss where its peers add theirs up: the job ends well, and is wrong."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


def loss_of_all(loss, reduction):
    """The loss over all ranks, as the learning rate is chosen by it."""
    total = loss.detach().clone()
    dist.all_reduce(total, op=reduction)  # SEEN
    return total


@scenario(
    world_size=4,
    expect=Expect(Cause.REDUCTION_MISMATCH, culprits={2}, group="default_pg"),
    backends=("gloo", "nccl-emulated"),
    reference="measured by hand; no public thread",
)
def reduction_mismatch(job):
    model = torch.nn.Linear(64, 8, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    reduction = dist.ReduceOp.SUM
    for step in job.steps(20):
        if job.faulty and job.rank == 2 and step == 5:
            reduction = dist.ReduceOp.MAX  # FAULT
        with job.section("forward_backward"):
            loss = model(job.batch(64)).square().mean()
            loss.backward()
        dist.all_reduce(model.weight.grad)
        optimizer.step()
        optimizer.zero_grad()
        loss_of_all(loss, reduction)
