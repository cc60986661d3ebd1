"""Three ranks on the emulated device: rank 1 stands in the sixth step, its peers launch on."""

import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from hanglab.harness import nccl_emulated

SIZE = 3


def work(rank, how, store):
    torch.set_num_threads(1)
    nccl_emulated.register()
    options = {"init_method": f"file://{store}", "rank": rank, "world_size": SIZE}
    dist.init_process_group("nccl_emulated", **options)
    pair = dist.new_group([0, 2], group_desc="pair")
    for step in range(12):
        gradient = torch.full((8,), float(rank + step))
        if rank == 1 and step == 5 and how == "away":
            time.sleep(600)
        if how == "exchange" and step == 5 and rank != 1:
            # Both ends receive first.
            dist.recv(gradient, 2 - rank, group=pair)
        dist.all_reduce(gradient)
        print(step, gradient.sum().item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.start_processes(work, args=(sys.argv[1], sys.argv[2]), nprocs=SIZE, start_method="fork")
