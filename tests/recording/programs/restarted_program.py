"""A rank of torchrun: rank 1 raises in its first attempt, and does what it is told in the next."""

import os
import sys
import time

import torch
import torch.distributed as dist

if __name__ == "__main__":
    attempt, rank = (int(os.environ[name]) for name in ("TORCHELASTIC_RESTART_COUNT", "RANK"))
    torch.set_num_threads(1)
    place = f"file://{sys.argv[2]}.{attempt}"
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=2)
    for step in range(20):
        if step == 5 and rank == 1 and attempt == 0:
            raise ValueError("the first attempt")
        if step == 7 and rank == 1 and sys.argv[1] == "hang":
            time.sleep(600)
        if step == 7 and rank == 1 and sys.argv[1] == "raise":
            raise RuntimeError("the second attempt")
        dist.all_reduce(torch.ones(8))
