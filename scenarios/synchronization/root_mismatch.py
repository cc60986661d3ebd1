"""Rank 1's copy of the scores is stale, so it takes another rank for the best of the population."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, Status, scenario


def share_best(weights, scores):
    """Everybody takes over the weights of the rank with the best score."""
    best = int(scores.argmax())
    dist.broadcast(weights, src=best)  # SEEN
    return best


@scenario(
    world_size=4,
    expect=Expect(
        Cause.ROOT_MISMATCH,
        culprits={1},
        group="default_pg",
        # NCCL compares no roots: the ranks get different weights, and go on.
        status={"gloo": Status.HUNG, "nccl": Status.CORRUPT},
    ),
    reference="NVIDIA/nccl#147",
    zoo="E6",
)
def root_mismatch(job):
    model = torch.nn.Linear(256, 256, bias=False).to(job.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scores = torch.zeros(job.world_size, device=job.device)
    for step in job.steps(20):
        with job.section("forward_backward"):
            loss = model(job.batch(256)).square().mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        fresh = torch.empty_like(scores)
        dist.all_gather_into_tensor(fresh, -loss.detach().reshape(1))
        fresh[step % job.world_size] += 1  # each rank has its turn
        if not (job.faulty and job.rank == 1 and step == 5):  # FAULT
            scores = fresh
        share_best(model.weight.data, scores)
