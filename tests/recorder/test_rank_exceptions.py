"""Exceptions at the top of a rank, whatever interrupts what writes them down."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import atexit, signal
from hanglab.recorder.rank import exceptions

def worker_died(number, frame):
    raise RuntimeError("DataLoader worker exited unexpectedly")

signal.signal(signal.SIGUSR1, worker_died)
written = []
watch = exceptions.ExceptionWatch(written.append, lambda traceback: None)
watch.install()
held = exceptions.undisturbed

def interrupted():
    exceptions.undisturbed = held
    signal.raise_signal(signal.SIGUSR1)

exceptions.undisturbed = interrupted

def end():
    watch.look_back()
    print([raised["message"] for raised in written])

atexit.register(end)
raise ConnectionResetError("the fetch failed")
"""


def test_a_handler_that_raises_in_the_hook_costs_no_exception() -> None:
    """A loader's worker that dies fails the fetch and raises by its signal, at about one time."""
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=280
    )
    assert ran.returncode == 1, ran.stderr
    assert ran.stdout == "['the fetch failed']\n", ran.stderr
