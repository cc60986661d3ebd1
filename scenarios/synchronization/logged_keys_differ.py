"""Rank 3's batch had one kind of loss more, and each key that is logged is summed by itself."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


def log_dict(metrics):
    """The mean of each metric over all ranks."""
    logged = {}
    for name in sorted(metrics):
        value = metrics[name].detach().clone()
        dist.all_reduce(value)  # SEEN
        logged[name] = value / dist.get_world_size()
    return logged


@scenario(
    world_size=4,
    expect=Expect(Cause.COLLECTIVE_MISMATCH, culprits={3}, group="default_pg"),
    reference="Lightning-AI/pytorch-lightning#19106",
    zoo="E14",
)
def logged_keys_differ(job):
    model = torch.nn.Linear(64, 8).to(job.device)
    for step in job.steps(20):
        with job.section("forward_backward"):
            loss = model(job.batch(64)).square().mean()
            loss.backward()
        metrics = {"loss": loss}
        if job.faulty and job.rank == 3 and step == 5:  # FAULT
            metrics["loss/rare"] = loss
        log_dict(metrics)
        dist.barrier()  # SEEN  where hosts run ahead, and a barrier reduces as many bytes as a loss
        model.zero_grad()
