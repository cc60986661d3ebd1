"""One rank that scatters reductions: gloo's buffer calls each of them an all_reduce."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
for _ in range(3):
    part = torch.zeros(4)
    dist.reduce_scatter(part, [torch.ones(4)])
    dist.all_reduce(part)
