"""Rank 1's batch has no labels for the second head, so DDP never reduces the bucket of its weights.

Its backward pass returns all the same, and its next operation meets the bucket of its peers.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, scenario


class TwoHeads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(64, 64)
        self.first = torch.nn.Linear(64, 8)
        self.second = torch.nn.Linear(64, 8)

    def forward(self, x, both):
        hidden = self.body(x).relu()
        loss = self.first(hidden).square().mean()
        return loss + self.second(hidden).square().mean() if both else loss


@scenario(
    world_size=4,
    expect=Expect(Cause.SKIPPED_COLLECTIVE, culprits={1}, group="default_pg"),
    reference="facebookresearch/fairscale#228",
    zoo="E9",
)
def unused_parameters(job):
    model = DistributedDataParallel(TwoHeads().to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in job.steps(20):
        labelled = not (job.faulty and job.rank == 1 and step == 5)  # FAULT
        with job.section("forward_backward"):
            loss = model(job.batch(64), labelled)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses = [torch.empty_like(loss) for _ in range(job.world_size)]
        dist.all_gather(losses, loss.detach())  # SEEN
        torch.stack(losses).mean().item()  # to be logged
