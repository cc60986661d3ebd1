"""A checkpoint's thread is slow on one rank, and its peers' threads wait for it in their own group.

The training goes on beside it: a collective stays open for long, and nobody is stuck.
"""

import tempfile
import threading

import torch
import torch.distributed as dist

from hanglab.harness import Expect, scenario


class Saver:
    """Writes a copy of the weights piece by piece, then agrees with all ranks that it is whole."""

    def __init__(self, group, pieces):
        self.group = group
        self.pieces = pieces

    def save(self, weights):
        with tempfile.TemporaryFile() as file:
            for _ in range(self.pieces):
                torch.save(weights, file)
                threading.Event().wait(0.02)
        dist.barrier(self.group)


@scenario(
    world_size=4,
    backends=("gloo",),
    expect=Expect.healthy(),
    reference="KempnerInstitute/KempnerForge#104",
    packs="checkpoint",
)
def saver_on_its_own_group(job):
    saver = Saver(dist.new_group(group_desc="savers"), pieces=120 if job.rank == 1 else 1)
    model = torch.nn.Linear(64, 64)
    thread = None
    for step in job.steps(200):
        with job.section("forward_backward"):
            model(job.batch(64, rows=256)).square().mean().backward()
        dist.all_reduce(model.weight.grad)
        if step == 5:
            thread = threading.Thread(target=saver.save, args=(model.weight.detach().clone(),))
            thread.start()
        model.zero_grad()
        threading.Event().wait(0.01)
    if thread is not None:
        thread.join()
