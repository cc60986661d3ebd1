"""Rank 0's checkpoint thread finds the disk full, logs it and gives up; rank 0 waits for it."""

import logging
import queue
import threading

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, Status, scenario


class Writer(threading.Thread):
    """Writes what it is given and says so; after an error it is of no use any more."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path = path
        self.orders: queue.Queue[bytes] = queue.Queue()
        self.written: queue.Queue[int] = queue.Queue()

    def run(self):
        with open(self.path, "ab") as file:
            while True:
                data = self.orders.get()
                try:
                    file.write(data)
                    file.flush()
                except OSError:
                    logging.exception("checkpoint lost")
                    return
                self.written.put(len(data))


@scenario(
    world_size=4,
    expect=Expect(Cause.DISK_FULL, culprits={0}, status=Status.HUNG),
    reference="measured by hand; no public thread",
    needs=("private_mounts",),
)
def disk_full_unraised(job):
    writer = None
    if job.rank == 0:
        folder = job.disk(mebibytes=8 if job.faulty else 64)  # FAULT
        writer = Writer(folder / "checkpoint")
        writer.start()
    weights = torch.ones(1 << 18)
    for _ in job.steps(30):
        dist.all_reduce(weights)
        if writer is not None:
            writer.orders.put(weights.numpy().tobytes())
            writer.written.get()  # SEEN
        dist.barrier()
