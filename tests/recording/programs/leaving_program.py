"""Rank 1 leaves its peers: in a signal's handler, by a thread, or by a line that ends it."""

import itertools
import os
import signal
import sys
import threading

import torch
import torch.distributed as dist

HOW = sys.argv[1]
#: The step at which rank 1 leaves, a second or so into the job.
STEP = 2000

due = threading.Event()


def snapshot(*_):
    dist.barrier()


def preempted():
    due.wait()
    os._exit(0)


def main() -> None:
    dist.init_process_group("gloo")
    leaves = dist.get_rank() == 1
    signal.signal(signal.SIGALRM, snapshot)
    if leaves and HOW == "thread":
        threading.Thread(target=preempted, daemon=True).start()
    for step in itertools.count():
        for _ in range(2):
            dist.all_reduce(torch.ones(4))
        if leaves and step == STEP:
            if HOW == "line":
                sys.exit(0)
            if HOW == "handler":
                signal.raise_signal(signal.SIGALRM)
            due.set()


main()
