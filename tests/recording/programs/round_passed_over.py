"""Rank 2 passes over one round of a loop, which nobody notices until the loop's end."""

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rounds = 0
    for step in range(30):
        if dist.get_rank() == 0 and step % 5 == 0:
            print("step", step)
        empty = dist.get_rank() == 2 and step == 7
        if empty:
            continue
        dist.all_reduce(torch.ones(4))
        rounds += 1
    dist.barrier()
    dist.destroy_process_group()


main()
