"""Trains twice on gloo, the groups destroyed and formed again in between; then one rank errs.

    python generations_program.py FOLDER SIZE STEPS WRONG KIND PORT

A step of the first training reduces among all, one of the second, of which there are STEPS,
gathers; in both, all but rank 0 have a reduction of their own first.  In the last step WRONG
is away, or skips that reduction.  Each rank dumps its buffer once the operations are there that it
issues until all wait, and ends when all have.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace

SIZE = int(sys.argv[2])
FIRST_STEPS, DEADLINE_S = 4, 120.0


def main() -> None:
    for rank in range(SIZE):
        if not os.fork():
            run(rank, Path(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    for _ in range(SIZE):
        os.wait()


def run(rank: int, folder: Path, steps: int, wrong: int, kind: str) -> None:
    """One rank's job, which ends its process."""
    global RANK
    RANK = rank
    STORE.append(dist.TCPStore("127.0.0.1", int(sys.argv[6]), is_master=not rank))
    away = RANK == wrong and kind == "away"
    form("first")
    for _ in range(FIRST_STEPS):
        if RANK:
            dist.all_reduce(torch.ones(3), group=OTHERS[0])
        dist.all_reduce(torch.ones(2))
    dist.barrier()
    dist.destroy_process_group()
    threading.Thread(target=dump, args=(folder, issued(steps, away), away)).start()
    form("second")
    for step in range(steps):
        faulty = RANK == wrong and step == steps - 1
        if faulty and away:
            threading.Event().wait()
        if RANK and not faulty:
            dist.all_reduce(torch.ones(3), group=OTHERS[0])
        dist.all_gather([torch.ones(2) for _ in range(SIZE)], torch.ones(2))
    dist.barrier()


RANK = 0
STORE: list[dist.TCPStore] = []
#: The group of all but rank 0.
OTHERS: list[dist.ProcessGroup] = []


def form(name: str) -> None:
    store = dist.PrefixStore(name, STORE[0])
    dist.init_process_group("gloo", store=store, rank=RANK, world_size=SIZE)
    OTHERS[:] = [dist.new_group(list(range(1, SIZE)))]


def issued(steps: int, away: bool) -> int:
    """How many operations the rank has issued when all wait."""
    each = 2 if RANK else 1
    return each * FIRST_STEPS + 1 + each * (steps - 1) + (not away)


def dump(folder: Path, count: int, away: bool) -> None:
    """Write the buffer once it shows that all wait, and end when every rank has."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        data = _dump_fr_trace()
        entries = pickle.loads(data)["entries"]
        unfinished = sum(not entry["retired"] for entry in entries)
        if len(entries) == count and unfinished == (not away):
            (folder / f"part_{RANK}").write_bytes(data)
            (folder / f"part_{RANK}").rename(folder / f"dump_{RANK}")
            break
        time.sleep(0.05)
    while time.monotonic() < deadline and len(list(folder.glob("dump_*"))) < SIZE:
        time.sleep(0.05)
    os._exit(0)


if __name__ == "__main__":
    main()
