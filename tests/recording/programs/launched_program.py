"""A rank that any launcher has started; rank 1 stays away from the sixth operation.

Its number stands in the environment, under the launcher's own names.
"""

import os
import sys
import time

import torch
import torch.distributed as dist

NAMES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


def work():
    for step in range(12):
        if rank == 1 and step == 5:
            time.sleep(600)
        dist.all_reduce(torch.ones(8))


if __name__ == "__main__":
    rank, size = next(
        (int(os.environ[one]), int(os.environ[all_])) for one, all_ in NAMES if one in os.environ
    )
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=size)
    work()
