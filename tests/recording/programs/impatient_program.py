"""A rank of torchrun: rank 1 sleeps beyond the time limit of its peers, who raise."""

import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=4))
    model = DistributedDataParallel(torch.nn.Linear(16, 8)) if sys.argv[1] == "model" else None
    for step in range(12):
        if step == 6 and dist.get_rank() == 1:
            time.sleep(600)
        if model is not None:
            model(torch.randn(4, 16)).sum().backward()
        else:
            dist.all_reduce(torch.ones(8))
