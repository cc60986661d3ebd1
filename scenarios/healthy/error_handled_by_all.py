"""Rank 1 fails on a batch and says so in the log; all ranks learn of it, and skip it together."""

import traceback

import torch
import torch.distributed as dist

from hanglab.harness import Expect, scenario


def loss_of(model, batch):
    if not torch.isfinite(batch).all():
        raise ValueError("the batch has values that are not finite")
    return model(batch).square().mean()


@scenario(
    world_size=4,
    expect=Expect.healthy(),
    reference="huggingface/trl#6862",
    packs="rl",
)
def error_handled_by_all(job):
    model = torch.nn.Linear(64, 8).to(job.device)
    for step in job.steps(30):
        batch, failed = job.batch(64), torch.zeros(1, device=job.device)
        if job.rank == 1 and step == 10:
            batch[3] = float("nan")
        try:
            loss = loss_of(model, batch)
        except ValueError:
            traceback.print_exc()
            failed += 1
        dist.all_reduce(failed)
        if failed.item():
            continue
        loss.backward()
        dist.all_reduce(model.weight.grad)
        model.zero_grad()
