"""Ranks that get stuck, each in a way of its own, told by ROLES: one letter per rank.

w waits in an all_reduce that never completes, g holds the interpreter's lock in
C, t hangs at the end of the program, s sleeps in a function of its own, b is
busy in Python, c waits for a child that is, x raises, n moves through functions for ever, d and D
sleep uninterruptibly, D with the interpreter's lock, until somebody writes into the pipe PIPE,
l holds that lock for two seconds of every two and a tenth.
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


def start_below_the_pipe(library):
    """Start a process by vfork that opens the pipe: its parent sleeps until it has."""
    actions = ctypes.create_string_buffer(512)
    name = os.fsencode(os.environ["PIPE"])
    library.posix_spawn_file_actions_init(actions)
    library.posix_spawn_file_actions_addopen(actions, 0, name, os.O_RDONLY, 0)
    arguments = (ctypes.c_char_p * 2)(b"true", None)
    library.posix_spawn(ctypes.byref(ctypes.c_int()), b"/bin/true", actions, None, arguments, None)


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
    elif role == "l":
        while True:
            ctypes.PyDLL(None).usleep(2_000_000)
            time.sleep(0.1)
    elif role in "dD":
        start_below_the_pipe(ctypes.CDLL(None) if role == "d" else ctypes.PyDLL(None))
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
