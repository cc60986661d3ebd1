"""Rank 2 waits for a queue that nobody fills, while its checkpoint's thread waits for the peers."""

import queue
import threading

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


@scenario(
    world_size=4,
    backends=("gloo",),
    expect=Expect(Cause.PYTHON_DEADLOCK, culprits={2}, group="default_pg"),
    reference="KempnerInstitute/KempnerForge#104",
    packs=("training", "checkpoint"),
)
def stopped_beside_saver(job):
    savers = dist.new_group(list(range(job.world_size)), group_desc="savers")
    uploads: queue.Queue[str] = queue.Queue()
    saver = None
    for step in job.steps(21):
        with job.section("compute"):
            gradient = torch.ones(64) * step
        # Ranks save when they have the time: some now, the others a step later.
        if step >= 4 and step % 5 == (4 if job.rank % 2 == 0 else 0):
            if saver is not None:
                saver.join()
            saver = threading.Thread(target=dist.barrier, args=(savers,))
            saver.start()
        if job.faulty and job.rank == 2 and step == 9:  # FAULT
            uploads.get()  # SEEN
        dist.all_reduce(gradient)
    if saver is not None:
        saver.join()
