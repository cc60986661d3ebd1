"""A job of two ranks, one in each pod, of which the second leaves an operation out."""

import os
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group(
    "gloo",
    init_method=f"file://{sys.argv[1]}",
    rank=int(os.environ["RANK"]),
    world_size=int(os.environ["WORLD_SIZE"]),
)
for step in range(5):
    if not (dist.get_rank() == 1 and step == 3):
        dist.all_reduce(torch.zeros(4))
    if dist.get_rank() == 1 and step == 3:
        time.sleep(100_000)
