"""Rank 1 works longer before eight small reductions in a row; nothing marks steps or sections."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


def forward(layer, inputs, passes):
    for _ in range(passes):
        inputs = torch.tanh(layer(inputs))  # SEEN
    return inputs


@scenario(
    world_size=4,
    expect=Expect(Cause.SLOW_COMPUTE, culprits={1}),
    reference="arXiv:2505.05713",
)
def slow_before_reductions(job):
    layer = torch.nn.Linear(256, 256).to(job.device)
    gradients = [torch.ones(100, device=job.device) for _ in range(8)]
    passes = 18 if job.faulty and job.rank == 1 else 3  # FAULT
    with torch.no_grad():
        for _ in range(60):
            forward(layer, torch.ones(768, 256, device=job.device), passes)
            for gradient in gradients:
                dist.all_reduce(gradient)
                gradient /= dist.get_world_size()
            job.synchronize()
