"""Rank 1 does not call what its peers call, by a value of its own; or all do, if told so."""

import sys

import torch
import torch.distributed as dist


def average(value: torch.Tensor) -> None:
    if torch.isnan(value).any():
        return
    dist.all_reduce(value)


def main() -> None:
    dist.init_process_group("gloo")
    for step in range(40):
        value = torch.ones(4)
        if sys.argv[1] == "hang" and dist.get_rank() == 1 and step == 20:
            value[0] = torch.nan
        average(value)
        dist.broadcast(torch.ones(2), src=0)
    dist.destroy_process_group()


main()
