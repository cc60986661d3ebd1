"""Rank 1 adds a padding token for every expert after it has announced how many it sends."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, Status, scenario


def dispatch(tokens, sends, receives):
    """Every token on the rank of its expert."""
    arrived = tokens.new_empty(sum(receives), tokens.shape[1])
    dist.all_to_all_single(arrived, tokens, receives, sends)  # SEEN
    return arrived


@scenario(
    world_size=4,
    expect=Expect(
        Cause.SPLIT_MISMATCH,
        culprits={1},
        group="default_pg",
        status={"gloo": Status.FAILED, "nccl": Status.HUNG},
    ),
    reference="deepspeedai/DeepSpeed#7998",
)
def split_mismatch(job):
    experts = torch.nn.Linear(64, 64).to(job.device)
    for step in job.steps(20):
        router = torch.Generator().manual_seed(step * job.world_size + job.rank)
        counts = torch.randint(4, 32, (job.world_size,), generator=router).to(job.device)
        receives = torch.empty_like(counts)
        dist.all_to_all_single(receives, counts)
        sends = counts.tolist()
        if job.faulty and job.rank == 1 and step == 5:  # FAULT
            sends = [count + 1 for count in sends]
        tokens = dispatch(job.batch(64, rows=sum(sends)), sends, receives.tolist())
        with job.section("forward_backward"):
            experts(tokens).square().mean().backward()
        for parameter in experts.parameters():
            dist.all_reduce(parameter.grad)
        experts.zero_grad()
