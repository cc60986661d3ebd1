"""A checkpoint is there for all ranks but one, whose file system does not show it yet.

Who sees it resumes from it, with what rank 0 broadcasts; rank 2 begins anew.
"""

import os
import tempfile

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


def resume(path, model):
    if not os.path.exists(path):
        return
    state = [torch.load(path) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(state, src=0)
    model.load_state_dict(state[0])


@scenario(
    world_size=4,
    expect=Expect(Cause.SKIPPED_COLLECTIVE, culprits={2}, group="default_pg"),
    reference="KempnerInstitute/KempnerForge#49",
    zoo="E16",
    packs="checkpoint",
)
def checkpoint_not_seen(job):
    model = torch.nn.Linear(64, 8).to(job.device)
    with tempfile.TemporaryDirectory() as folder:  # each rank's own view of a shared folder
        path = os.path.join(folder, "latest.pt")
        for step in job.steps(20):
            model(job.batch(64)).square().mean().backward()
            dist.all_reduce(model.weight.grad)  # SEEN
            model.zero_grad()
            if step % 5 == 4:
                if not (job.faulty and job.rank == 2 and step == 9):  # FAULT
                    torch.save(model.state_dict(), path)
                resume(path, model)
                if os.path.exists(path):
                    os.remove(path)
