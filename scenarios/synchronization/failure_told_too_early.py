"""Rank 1 fails to score its texts and goes to ask who else failed; its peers gather the scores."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


def score(texts, broken):
    if broken:
        raise ValueError("the verifier returned no number")
    return texts.square().mean(dim=1)


def gather_scores(texts, broken, world_size):
    scores = score(texts, broken)
    everybody = torch.empty(world_size * len(scores), device=scores.device)
    dist.all_gather_into_tensor(everybody, scores)
    return everybody


@scenario(
    world_size=4,
    expect=Expect(Cause.SKIPPED_COLLECTIVE, culprits={1}, group="default_pg"),
    reference="huggingface/trl#6862",
    zoo="E22",
    packs="rl",
)
def failure_told_too_early(job):
    for step in job.steps(20):
        texts = job.batch(64)
        failed = torch.zeros(1, device=job.device)
        broken = job.faulty and job.rank == 1 and step == 5  # FAULT
        try:
            gather_scores(texts, broken, job.world_size)
        except ValueError:
            failed += 1  # told to all below, so that all skip this batch together
        dist.all_reduce(failed)  # SEEN
        if failed.item():
            continue
