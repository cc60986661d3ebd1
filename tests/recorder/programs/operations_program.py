"""Every kind of operation once, then waits for a file and ends."""

import os
import threading
import time

import torch
import torch.distributed as dist

from hanglab import recorder

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group(
    "gloo", init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=size
)
pair = dist.new_group([0, 1], group_desc="pair")
other = 1 - rank


def train():
    recorder.step()
    with recorder.section("work"):
        dist.all_reduce(torch.ones(3, 4), op=dist.ReduceOp.MAX)
    dist.broadcast(torch.ones(2, dtype=torch.float64), src=1)
    recorder.step()
    dist.all_reduce(torch.ones(1), async_op=True, group=pair).wait()
    lists = [1, 2] if rank == 0 else [2, 1]
    dist.all_to_all_single(torch.zeros(3), torch.zeros(3), lists, lists)
    if rank == 0:
        dist.send(torch.ones(5), 1)
        dist.isend(torch.ones(5), 1, tag=3).wait()
    else:
        dist.recv(torch.ones(5), 0)
        dist.irecv(torch.ones(5), tag=3).wait()
    gathered = [torch.zeros(2), torch.zeros(2)] if rank == 0 else None
    dist.gather(torch.ones(2), gathered, dst=0)
    dist.scatter(torch.ones(2), gathered, src=0)
    dist.reduce(torch.ones(2), dst=1, op=dist.ReduceOp.MIN)
    dist.barrier()
    dist.monitored_barrier()
    try:
        dist.all_to_all_single(torch.zeros(3), torch.zeros(3), [7, 7], [7, 7])
    except Exception as error:
        print(type(error).__name__)
    return dist.irecv(torch.ones(6), other, tag=9)  # nobody sends this


work = train()
print(threading.active_count(), flush=True)
with recorder.section("waiting"):
    while not os.path.exists(os.environ["STORE"] + ".go"):
        time.sleep(0.01)
del work
dist.destroy_process_group()
