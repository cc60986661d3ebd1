"""Rank 3 runs a block ahead: it leaves out the agreement on the step that its peers wait for.

A scheduler may overlap steps only where all ranks do.
"""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


class Engine:
    """Runs blocks of a model; after each the ranks agree on what comes next."""

    def __init__(self, job):
        self.hidden = torch.zeros(64)
        self.votes = [torch.zeros(1) for _ in range(job.world_size)]

    def run_block(self):
        for _ in range(3):
            dist.all_reduce(self.hidden)  # SEEN

    def agree(self):
        dist.all_gather(self.votes, torch.ones(1))


@scenario(
    world_size=4,
    backends=("gloo",),
    expect=Expect(Cause.SKIPPED_COLLECTIVE, culprits={3}, group="default_pg"),
    reference="vllm-project/vllm#46097",
    zoo="H5",
    packs="serving",
)
def block_ahead(job):
    engine = Engine(job)
    for step in job.steps(20):
        engine.run_block()
        ahead = job.faulty and job.rank == 3 and step == 5  # FAULT
        if not ahead:
            engine.agree()
        with job.section("sample"):
            engine.hidden.softmax(0)
