"""Rank 1's main thread wants a free operation of a pool; who frees them waits for the main thread.

The thread that launches what was appended takes a whole group at a time, and the group does not
fit into the pool.
"""

import queue
import threading

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


class Launcher:
    """Reductions are appended by the main thread, and launched by another one in groups."""

    def __init__(self, size):
        self.free: queue.Queue[object] = queue.Queue()
        for _ in range(size):
            self.free.put(object())
        self.groups: queue.Queue[list[torch.Tensor]] = queue.Queue()
        self.group: list[torch.Tensor] = []
        self.launched = threading.Semaphore(0)
        threading.Thread(target=self.launch, daemon=True).start()

    def append(self, tensor):
        self.free.get()  # SEEN
        self.group.append(tensor)

    def close_group(self):
        self.groups.put(self.group)
        self.group = []
        self.launched.acquire()

    def launch(self):
        while True:
            for tensor in self.groups.get():
                dist.all_reduce(tensor)
                self.free.put(object())
            self.launched.release()


@scenario(
    world_size=4,
    backends=("gloo",),
    expect=Expect(Cause.PYTHON_DEADLOCK, culprits={1}),
    reference="NVIDIA/nccl#2353",
    zoo="H6",
)
def operation_pool_exhausted(job):
    pool = 4 if job.faulty and job.rank == 1 else 8  # FAULT
    launcher = Launcher(pool)
    gradients = [torch.ones(64) for _ in range(8)]
    for step in job.steps(20):
        for gradient in gradients[: 8 if step >= 5 else 4]:
            launcher.append(gradient)
        launcher.close_group()
