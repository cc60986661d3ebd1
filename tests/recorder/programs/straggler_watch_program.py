"""A loop that is to end where a straggler is found; rank 1 reads nothing from the store.

Each rank prints after which steps it had the others' decision.
"""

import os

import torch
import torch.distributed as dist

from hanglab.recorder.straggler import exchange
from hanglab.recorder.straggler.detector import Detector
from hanglab.recorder.straggler.loop import watch_stragglers

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group(
    "gloo", init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=size
)
if rank == 1:
    exchange.StoreExchange.read = lambda self, keys: {}
part = torch.ones(4)
due = []
with watch_stragglers(report_time_interval=0.001, stop_if_detected=True) as watch:
    for step in range(1, 40):
        with watch.section("forward"):
            dist.all_reduce(part)
        watch.step()
        if Detector.is_interval_elapsed():
            due.append(step)
print(due, flush=True)
dist.destroy_process_group()
