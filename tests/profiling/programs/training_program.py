"""A small training job.  argv: seconds to run, and what to do in the middle.

``hang``: rank 1 stands still after some steps.  ``own``: each rank runs
torch.profiler by itself all the time.  ``leave``: as without, ending at once
when the file named by the third argument appears.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time

import torch
import torch.distributed as dist

seconds, mode = float(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""


def wait_for_disk() -> None:
    threading.Event().wait()


def train() -> None:
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    begun = time.monotonic()
    step = 0
    going = torch.ones(1)
    while going.item() > 0:
        # So that a trace tells which iterations it holds.
        with torch.profiler.record_function(f"step {step}"):
            model(torch.randn(8, 64)).sum().backward()
        if mode == "hang" and step == 20 and dist.get_rank() == 1:
            wait_for_disk()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        if mode == "leave" and os.path.exists(sys.argv[3]):
            os._exit(0)
        time.sleep(0.005)
        step += 1
        if step == 3:
            print(f"rank {dist.get_rank()} trains", flush=True)
        going = torch.tensor([float(time.monotonic() - begun < seconds)])
        dist.all_reduce(going, dist.ReduceOp.MIN)


dist.init_process_group("gloo")
with torch.profiler.profile() if mode == "own" else contextlib.nullcontext():
    train()
dist.destroy_process_group()
