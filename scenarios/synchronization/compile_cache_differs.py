"""Three ranks compile for a new shape and agree on it with all ranks; rank 1 has no need to.

What is compiled has to be the same everywhere, so a compilation holds a collective, which no line
of the training shows.
"""

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


class Compiled:
    """A module that is traced once for each number of rows, which all ranks agree on."""

    def __init__(self, module):
        self.module = module
        self.traces = {}

    def __call__(self, batch):
        rows = len(batch)
        if rows not in self.traces:
            seen = [None] * dist.get_world_size()
            dist.all_gather_object(seen, rows)
            self.traces[rows] = torch.jit.trace(self.module, batch, check_trace=False)
        return self.traces[rows](batch)


@scenario(
    world_size=4,
    expect=Expect(Cause.SKIPPED_COLLECTIVE, culprits={1}, group="default_pg"),
    reference="pytorch/pytorch#155558",
    zoo="E17",
    packs=("serving", "training"),
)
def compile_cache_differs(job):
    model = torch.nn.Linear(64, 8).to(job.device)
    compiled = Compiled(model)
    for step in job.steps(20):
        rows = 8 if step < 6 else 16
        if job.faulty and job.rank == 1 and step == 6:
            rows = 8  # FAULT  a batch as before, where its peers have a longer one
        with job.section("forward_backward"):
            compiled(job.batch(64, rows=rows)).square().mean().backward()
        dist.all_reduce(model.weight.grad)  # SEEN
        model.zero_grad()
