"""Rank 1 left a layer in evaluation mode, which normalises without asking its peers."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


class SyncNorm(torch.nn.Module):
    """Normalises by mean and variance over all ranks' batches while training, as SyncBatchNorm."""

    def __init__(self, width, world_size):
        super().__init__()
        self.world_size = world_size
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))

    def forward(self, x):
        if self.training:
            mine = torch.cat([x.mean(0), x.var(0)]).detach()
            everybody = [torch.empty_like(mine) for _ in range(self.world_size)]
            dist.all_gather(everybody, mine)
            self.mean, self.variance = torch.stack(everybody).mean(0).chunk(2)
        return (x - self.mean) / (self.variance + 1e-5).sqrt()


@scenario(
    world_size=4,
    expect=Expect(Cause.SKIPPED_COLLECTIVE, culprits={1}, group="default_pg"),
    reference="pytorch/pytorch#44957",
    zoo="E13",
)
def norm_in_evaluation_mode(job):
    norm = SyncNorm(64, job.world_size)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), norm, torch.nn.Linear(64, 8))
    model.to(job.device)
    for step in job.steps(20):
        if job.faulty and job.rank == 1 and step == 5:
            norm.eval()  # FAULT  a callback that measured this layer, and forgot to switch back
        with job.section("forward_backward"):
            model(job.batch(64)).square().mean().backward()
        dist.all_reduce(model[0].weight.grad)  # SEEN
        model.zero_grad()
