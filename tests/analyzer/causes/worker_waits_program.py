"""Ranks of which one waits for data of a worker process of its own.

    hanglab run worker_waits_program.py -- KIND WAITER FAULT

KIND: queue, feeder (a queue with a thread) or pipe of multiprocessing.  At the fifth item the
worker of rank WAITER ends by a signal (``dies``) or waits for an event that nobody sets
(``rests``); with ``none`` nothing is wrong.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable

import torch
import torch.distributed as dist

STEP = 5
KIND, WAITER, FAULT = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def produce(put: Callable[[int], None], fault: str) -> None:
    for step in range(2 * STEP):
        if step == STEP and fault == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if step == STEP and fault == "rests":
            threading.Event().wait(600)  # RESTS
        put(step)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    fork = multiprocessing.get_context("fork")
    put: Callable[[int], None]
    take: Callable[[], int]
    if KIND != "pipe":
        queue = fork.SimpleQueue() if KIND == "queue" else fork.Queue()
        put, take = queue.put, queue.get
    else:
        end, other = fork.Pipe()
        put, take = other.send, end.recv
    worker = fork.Process(target=produce, args=(put, FAULT if rank == WAITER else "none"))
    worker.start()
    for _ in range(2 * STEP):
        take()
        dist.all_reduce(torch.ones(4))
    worker.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
