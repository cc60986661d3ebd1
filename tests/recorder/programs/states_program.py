"""Six ranks that get stuck, each in a way of its own, told by ROLES: one letter per rank.

w waits in an all_reduce that never completes, g holds the interpreter's lock in
C, t hangs at the end of the program, s sleeps in a function of its own, b is
busy in Python, c waits for a child that is, x raises, n moves through functions for ever.
"""

import atexit
import ctypes
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist

from hanglab import recorder

#: It ends with its parent.
SPIN_BELOW = "import os; above = os.getppid()\nwhile os.getppid() == above: pass"

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
role = os.environ["ROLES"][rank]
dist.init_process_group(
    "gloo", init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=size
)


def sleep_for_ever():
    while True:
        time.sleep(600)


def spin():
    while True:
        pass


def first():
    time.sleep(0.05)


def second():
    time.sleep(0.05)


def play():
    for _ in range(5):
        recorder.step()
        with recorder.section("reduce"):
            dist.all_reduce(torch.ones(8))
    print("stuck", flush=True)
    if role == "w":
        dist.all_reduce(torch.ones(8))
    elif role == "g":
        ctypes.PyDLL(None).sleep(600)
    elif role == "t":
        atexit.register(sleep_for_ever)
    elif role == "s":
        sleep_for_ever()
    elif role == "b":
        spin()
    elif role == "c":
        subprocess.run([sys.executable, "-c", SPIN_BELOW], check=False)
    elif role == "x":
        raise RuntimeError("the reason of it all")
    elif role == "n":
        while True:
            first()
            second()


play()
