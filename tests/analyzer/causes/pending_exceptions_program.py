"""Ranks that handle an exception by calls of their own, of which nothing is ever printed.

    hanglab run pending_exceptions_program.py -- KIND CULPRIT

KIND says where rank CULPRIT is while it handles one: ``finally`` around all steps, ``same_frame``
(around each, in the function that makes the calls), ``context`` (a manager with a barrier in a
group of its own, around messages).  In ``everybody`` all handle the same one soundly, in
``one_alone`` rank 0 does, and rank CULPRIT leaves a call out of its own accord.  With CULPRIT -1
nothing is wrong.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist

STEPS, STEP = 8, 5
KIND, CULPRIT = sys.argv[1], int(sys.argv[2])


def load(step: int) -> torch.Tensor:
    if step == STEP and dist.get_rank() == CULPRIT:
        raise ValueError("sample 17 is corrupt")  # RAISES
    return torch.ones(4)


def reduce_all() -> None:
    for step in range(STEPS):
        dist.all_reduce(load(step))


def reduce_each() -> None:
    for step in range(STEPS):
        try:
            batch = load(step)
            dist.all_reduce(batch)
        finally:
            dist.barrier()


def exchange_all() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for step in range(STEPS):
        work = dist.isend(load(step), (rank + 1) % size)
        dist.recv(torch.empty(4), (rank - 1) % size)
        if work is not None:
            work.wait()


def leave_out() -> None:
    for step in range(STEPS):
        if step != STEP or dist.get_rank() != CULPRIT:
            dist.all_reduce(torch.ones(4))
        dist.broadcast(torch.ones(2), 0)


@contextlib.contextmanager
def together() -> Iterator[None]:
    group = dist.new_group()
    try:
        yield
    finally:
        dist.barrier(group=group)


def main() -> None:
    dist.init_process_group("gloo")
    if KIND == "finally":
        try:
            reduce_all()
        finally:
            dist.barrier()
    elif KIND == "same_frame":
        reduce_each()
    elif KIND == "context":
        with together():
            exchange_all()
    elif KIND == "everybody" or dist.get_rank() == 0:
        try:
            int("none")
        except ValueError:
            leave_out()
    else:
        leave_out()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
