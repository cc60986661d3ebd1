"""A health check aborts rank 1's communicators; its next launch is refused, and its peers wait."""

import torch
import torch.distributed as dist

from hanglab.harness import AbortCommunicators, Cause, Expect, scenario


@scenario(
    world_size=4,
    backends=("nccl-emulated",),
    expect=Expect(Cause.EXCEPTION, culprits={1}),
    faults=[AbortCommunicators(rank=1, at_step=8)],
    reference="pytorch/pytorch#118692",
)
def communicator_aborted(job):
    model = torch.nn.Linear(64, 8).to(job.device)
    for _ in job.steps(200):
        with job.section("forward_backward"):
            loss = model(job.batch(64)).square().mean()
            loss.backward()
        dist.all_reduce(model.weight.grad)  # SEEN
        model.zero_grad()
        loss.item()
