"""A kernel of somebody else has rank 2's device for ever, so that its reductions never start."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, OccupyDevice, scenario


@scenario(
    world_size=4,
    backends=("nccl-emulated",),
    # A dump tells whose device has not begun the reduction, and no line of what it runs.
    expect=Expect(Cause.GPU_FAULT, culprits={2}, location=None),
    faults=[OccupyDevice(rank=2, at_step=8)],
    reference="NVIDIA/nccl#968",
    zoo="G2",
)
def device_occupied(job):
    model = torch.nn.Linear(64, 8).to(job.device)
    for _ in job.steps(200):
        with job.section("forward_backward"):
            loss = model(job.batch(64)).square().mean()
            loss.backward()
        dist.all_reduce(model.weight.grad)
        model.zero_grad()
        loss.item()
