"""Ranks of which a lock is held over an operation that another thread needs for its own.

    hanglab run lock_in_operation_program.py -- ODD

The main thread of rank ODD holds the lock that its other thread wants before an operation.  With
ODD -1 nothing is wrong.
"""

from __future__ import annotations

import sys
import threading

import torch
import torch.distributed as dist

ODD = int(sys.argv[1])


def report(group: dist.ProcessGroup, lock: threading.Lock, go: threading.Event) -> None:
    go.wait()
    with lock:
        dist.all_reduce(torch.ones(4), group=group)


def main() -> None:
    dist.init_process_group("gloo")
    odd = dist.get_rank() == ODD
    side, lock, go = dist.new_group(), threading.Lock(), threading.Event()
    thread = threading.Thread(target=report, args=(side, lock, go), daemon=True)
    thread.start()
    for _ in range(4):
        dist.all_reduce(torch.ones(4))
    if odd:
        with lock:
            go.set()
            dist.all_reduce(torch.ones(4))  # HOLDS
    else:
        go.set()
        thread.join()
        dist.all_reduce(torch.ones(4))
    thread.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
