"""Rank 2 is stopped in the middle of its training, as by a debugger or a paused machine."""

import torch
from torch.nn.parallel import DistributedDataParallel

from hanglab.harness import Cause, Expect, Freeze, scenario


@scenario(
    world_size=4,
    expect=Expect(Cause.PROCESS_FROZEN, culprits={2}),
    reference="measured by hand; no public thread",
    zoo="F8",
    faults=[Freeze(rank=2, at_step=5)],
)
def process_frozen(job):
    layers = [torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(job.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in job.steps(40):  # SEEN
        inputs = job.batch(512, rows=128)  # SEEN
        with job.section("forward_backward"):  # SEEN
            loss = model(inputs).square().mean()  # SEEN
            loss.backward()  # SEEN
        optimizer.step()  # SEEN
        optimizer.zero_grad()  # SEEN
