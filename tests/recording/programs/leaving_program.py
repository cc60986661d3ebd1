"""Rank 1 leaves its peers: in a signal's handler, by a thread, or by a line that ends it."""

import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist

HOW = sys.argv[1]


def snapshot(*_):
    dist.barrier()


def preempted():
    time.sleep(1)
    os._exit(0)


def main() -> None:
    dist.init_process_group("gloo")
    if dist.get_rank() == 1 and HOW == "handler":
        signal.signal(signal.SIGALRM, snapshot)
        signal.setitimer(signal.ITIMER_REAL, 1)
    elif dist.get_rank() == 1 and HOW == "thread":
        threading.Thread(target=preempted, daemon=True).start()
    for step in range(600):
        for _ in range(2):
            dist.all_reduce(torch.ones(4))
        if dist.get_rank() == 1 and HOW == "line" and step == 40:
            sys.exit(0)
        time.sleep(0.02)
    dist.destroy_process_group()


main()
