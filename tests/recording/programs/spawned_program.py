"""Ranks of torch.multiprocessing.spawn; the first argument says how they fare."""

import ctypes
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SIZE = 2


def work(rank, how, store):
    torch.set_num_threads(1)
    if os.environ.get("UNDUMPABLE"):
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=SIZE)
    for step in range(12):
        tensor = torch.full((8,), float(rank + step))
        if rank == 1 and step == 5:
            if how == "raise":
                raise ValueError("the sixth step")
            if how == "die":
                os._exit(7)
            if how == "hang":
                Path(store + ".hangs").touch()
                time.sleep(600)
        dist.all_reduce(tensor)
        if rank == 0:
            print(step, tensor[0].item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.start_processes(work, args=(sys.argv[1], sys.argv[2]), nprocs=SIZE, start_method="fork")
