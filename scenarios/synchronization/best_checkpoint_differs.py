"""Each rank compares its own validation loss with its best; only rank 2 improves, and saves."""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


class SaveBest:
    """Saves, with all ranks, whenever the monitored value is the best so far."""

    def __init__(self):
        self.best = float("inf")

    def on_validation_end(self, monitored, model):
        if monitored >= self.best:
            return
        self.best = monitored
        dist.barrier()  # SEEN
        self.saved = {name: value.clone() for name, value in model.state_dict().items()}


@scenario(
    world_size=4,
    expect=Expect(Cause.COLLECTIVE_MISMATCH, culprits={2}, group="default_pg"),
    reference="Lightning-AI/pytorch-lightning#19045",
    zoo="E15",
    packs="checkpoint",
)
def best_checkpoint_differs(job):
    model = torch.nn.Linear(64, 8).to(job.device)
    save_best = SaveBest()
    for step in job.steps(20):
        with job.section("forward_backward"):
            model(job.batch(64)).square().mean().backward()
        dist.all_reduce(model.weight.grad)
        model.zero_grad()
        validated = 1.0 / (1 + step // 4)  # what all ranks agreed on
        if job.faulty and job.rank == 2 and step == 6:
            validated -= 0.1  # FAULT  its own, which was never reduced
        save_best.on_validation_end(validated, model)
