"""The memory of rank 1's device loses two bits: CUDA tells of a failure, the driver of which."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, FailDevice, Status, scenario


@scenario(
    world_size=4,
    backends=("nccl-emulated",),
    expect=Expect(Cause.GPU_FAULT, culprits={1}, status=Status.FAILED),
    faults=[FailDevice(rank=1, at_step=8, error="unspecified launch failure", xid=48)],
    reference="pytorch/pytorch#113128",
)
def ecc_error(job):
    model = torch.nn.Linear(64, 8).to(job.device)
    for _ in job.steps(200):
        with job.section("forward_backward"):
            loss = model(job.batch(64)).square().mean()
            loss.backward()
        dist.all_reduce(model.weight.grad)  # SEEN
        model.zero_grad()
        loss.item()  # SEEN
