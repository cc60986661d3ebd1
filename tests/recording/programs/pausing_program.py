"""One rank that stands still until a pipe is written to, and then goes on until told to stop.

Arguments: the pipe, and a file that stops it.
"""

import os
import sys

import torch
import torch.distributed as dist


def pause(pipe):
    with open(pipe, "rb") as file:
        file.read()


if __name__ == "__main__":
    pipe, stop = sys.argv[1:]
    dist.init_process_group("gloo", init_method=f"file://{stop}.store", rank=0, world_size=1)
    for _ in range(5):
        dist.all_reduce(torch.ones(4))
    pause(pipe)
    while not os.path.exists(stop):
        dist.all_reduce(torch.ones(4))
    dist.destroy_process_group()
    print("done")
