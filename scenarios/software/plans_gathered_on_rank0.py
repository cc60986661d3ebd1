"""Rank 0 works through all ranks' plans of a checkpoint, and they wait for its answer.

The checkpoint is torch's own (`torch.distributed.checkpoint`); what takes long is the planner.
"""

import tempfile

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.state_dict_saver import save

from hanglab.harness import Cause, Expect, scenario


def names_of(plan):
    return sorted(f"{item.index.fqn} " * 40 for item in plan.items)  # SEEN


class ThoroughPlanner(DefaultSavePlanner):
    """Compares each plan with each, again and again."""

    rounds = 1

    def create_global_plan(self, all_plans):
        seen: set[str] = set()
        for number in range(self.rounds):  # SEEN
            for plan in all_plans:  # SEEN
                seen.update(f"{number} {name}" for name in names_of(plan))  # SEEN
            seen.clear()  # SEEN
        return super().create_global_plan(all_plans)


@scenario(
    world_size=4,
    backends=("gloo",),
    expect=Expect(Cause.RANK0_WORK, culprits={0}),
    hang_after=1.0,
    reference="huggingface/accelerate#4105",
    zoo="B12",
    packs="checkpoint",
)
def plans_gathered_on_rank0(job):
    layers = {f"layer.{number}": torch.randn(8, 8) for number in range(200)}
    planner = ThoroughPlanner()
    planner.rounds = 8_000 if job.faulty else 2  # FAULT
    folder = [tempfile.mkdtemp() if job.rank == 0 else ""]
    dist.broadcast_object_list(folder, src=0)
    for step in job.steps(20):
        dist.all_reduce(layers["layer.0"])
        if step == 5:
            save(layers, checkpoint_id=folder[0], planner=planner)
