"""Checkpoints are planned in a thread that uses the training's group; on rank 2 it is late."""

import threading

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


class Checkpoints:
    """Agrees with all ranks on the shards to write, in a thread beside the training."""

    def __init__(self, group, device):
        self.group, self.device = group, device

    def save(self, step, staged, planned):
        staged.wait()
        size = torch.tensor([step], device=self.device)
        sizes = [torch.empty_like(size) for _ in range(dist.get_world_size())]
        work = dist.all_gather(sizes, size, group=self.group, async_op=True)
        planned.set()
        work.wait()

    def start(self, step, staged, planned):
        thread = threading.Thread(target=self.save, args=(step, staged, planned))
        thread.start()
        return thread


@scenario(
    world_size=4,
    expect=Expect(Cause.COLLECTIVE_MISMATCH, culprits={2}, group="default_pg"),
    reference="KempnerInstitute/KempnerForge#104",
    zoo="D16",
    packs="checkpoint",
)
def checkpoint_in_thread(job):
    own = dist.new_group(list(range(job.world_size)), backend="gloo", group_desc="checkpoints")
    checkpoints = Checkpoints(own, "cpu")
    if job.faulty:
        checkpoints = Checkpoints(None, job.device)  # FAULT
    model = torch.nn.Linear(64, 64).to(job.device)
    for step in job.steps(20):
        saver = None
        staged, planned = threading.Event(), threading.Event()
        with job.section("forward_backward"):
            model(job.batch(64)).square().mean().backward()
        if step % 5 == 0:
            saver = checkpoints.start(step, staged, planned)
            # Rank 2 stages its weights later, from a copy; the others wait until that is done.
            late = job.rank == 2 and step == 5
            if not late:
                staged.set()
                planned.wait()
        work = dist.all_reduce(model.weight.grad, async_op=True)  # SEEN
        staged.set()
        work.wait()  # SEEN
        if saver is not None:
            saver.join()
        model.zero_grad()
