"""A kernel of rank 1 never ends, so the reduction behind it on the same stream never starts."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


@scenario(
    world_size=2,
    backends=("nccl", "nccl-emulated"),
    # A dump tells whose device has not begun the reduction, and no line of what it runs.
    expect=Expect(Cause.GPU_FAULT, culprits={1}, location=None),
    reference="NVIDIA/nccl#968",
    zoo="G2",
)
def spinning_kernel(job):
    model = torch.nn.Linear(64, 8).to(job.device)
    for step in job.steps(20):
        with job.section("forward_backward"):
            model(job.batch(64)).square().mean().backward()
        if job.faulty and job.rank == 1 and step == 5:
            torch.cuda._sleep(1 << 60)  # FAULT
        dist.all_reduce(model.weight.grad)
        model.zero_grad()
        torch.cuda.synchronize()
