"""Rank 1's batch has no image, so it never gathers the weights of the vision tower.

The layers are sharded: to run one, all ranks gather its weights.
"""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


class Sharded:
    """A layer of which each rank keeps a part, gathered for the time of its use."""

    def __init__(self, job, width):
        self.shard = torch.randn(width // job.world_size, 64, device=job.device) / 8
        self.whole = torch.empty(width, 64, device=job.device)

    def __call__(self, x):
        dist.all_gather_into_tensor(self.whole, self.shard)
        return x @ self.whole.T


class VisionLanguageModel:
    def __init__(self, job):
        self.vision = Sharded(job, 64)
        self.language = Sharded(job, 64)

    def __call__(self, text, image):
        if image is not None:
            text = text + self.vision(image)  # the gather that rank 1 leaves out
        return self.language(text)


@scenario(
    world_size=4,
    expect=Expect(Cause.SKIPPED_COLLECTIVE, culprits={1}, group="default_pg"),
    reference="huggingface/transformers#37186",
    zoo="H16",
)
def modality_skipped(job):
    model = VisionLanguageModel(job)
    for step in job.steps(20):
        text, image = job.batch(64), job.batch(64)
        if job.faulty and job.rank == 1 and step == 5:  # FAULT
            image = None
        loss = model(text, image).square().mean()
        dist.all_reduce(loss)  # SEEN
