"""Rank 0 alone saves the state, as one does with whole models; this one is sharded.

To gather it takes all ranks, which are in the next step instead.
"""

import io

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


class ShardedOptimizer:
    """Momentum of which each rank keeps a part."""

    def __init__(self, parameter, job):
        self.parameter = parameter
        self.momentum = torch.zeros(parameter.numel() // job.world_size, device=job.device)

    def step(self):
        gradient = self.parameter.grad.flatten()
        dist.reduce_scatter_tensor(self.momentum, gradient)
        dist.all_gather_into_tensor(gradient, self.momentum)

    def state_dict(self):
        whole = torch.empty(self.parameter.numel(), device=self.momentum.device)
        dist.all_gather_into_tensor(whole, self.momentum)  # SEEN
        return {"momentum": whole}


@scenario(
    world_size=4,
    expect=Expect(Cause.COLLECTIVE_MISMATCH, culprits={0}, group="default_pg"),
    reference="huggingface/accelerate#2000",
    zoo="E2",
    packs="checkpoint",
)
def saved_by_rank0_alone(job):
    model = torch.nn.Linear(64, 8, bias=False).to(job.device)
    optimizer = ShardedOptimizer(model.weight, job)
    for step in job.steps(20):
        with job.section("forward_backward"):
            model(job.batch(64)).square().mean().backward()
        optimizer.step()
        model.zero_grad()
        if step % 5 == 4 and (job.rank == 0 or not job.faulty):  # FAULT
            torch.save(optimizer.state_dict(), io.BytesIO())
