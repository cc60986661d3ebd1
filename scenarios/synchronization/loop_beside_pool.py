"""A reduction that rank 2's event loop sent to a thread pool overtakes the loop's own gather.

Both use the default group: what comes first depends on the threads.
"""

import asyncio
import threading

import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


class Worker:
    """Serves one step: the pool's thread reduces statistics, the loop's own gathers logits."""

    def __init__(self, job):
        self.job = job
        self.statistics = torch.zeros(16)
        self.logits = [torch.zeros(64) for _ in range(job.world_size)]

    def reduce_statistics(self):
        dist.all_reduce(self.statistics)  # SEEN

    def gather_logits(self):
        dist.all_gather(self.logits, torch.ones(64))

    async def step(self, overtaken):
        loop = asyncio.get_running_loop()
        if overtaken:
            entered = threading.Event()

            def reduce_first():
                entered.set()
                self.reduce_statistics()

            pending = loop.run_in_executor(None, reduce_first)
            entered.wait()
            await asyncio.sleep(0.05)
            self.gather_logits()
            await pending
        else:
            self.gather_logits()
            await loop.run_in_executor(None, self.reduce_statistics)


@scenario(
    world_size=4,
    backends=("gloo",),
    expect=Expect(Cause.COLLECTIVE_MISMATCH, culprits={2}, group="default_pg"),
    reference="volcengine/verl#7423",
    zoo="H8",
    packs="rl",
)
def loop_beside_pool(job):
    worker = Worker(job)

    async def serve():
        for step in job.steps(20):
            await worker.step(job.faulty and job.rank == 2 and step == 5)  # FAULT

    asyncio.run(serve())
