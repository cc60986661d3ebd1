"""The end of the detector's own thread."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import sys
from pathlib import Path
from hanglab.recorder.straggler.exchange_thread import ExchangeThread

go_on, told = map(Path, sys.argv[1:])

class BusyStore:
    def publish(self, key, value):
        go_on.read_bytes()  # a pipe, until somebody closes it
        told.write_bytes(value)

    def read(self, keys):
        return {}

thread = ExchangeThread(BusyStore, lambda: None)
thread.publish("key", b"value")
thread.stop(0.05)
print("left", flush=True)
"""


def test_the_interpreter_does_not_end_under_a_call_of_its_store(tmp_path: Path) -> None:
    """A thread that came back from C++ then took the job down, with SIGABRT."""
    go_on, told = tmp_path / "go on", tmp_path / "told"
    os.mkfifo(go_on)
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(go_on), str(told)], stdout=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout is not None and job.stdout.readline() == "left\n"
        go_on.write_bytes(b"")
        assert job.wait(280) == 0
    assert told.read_bytes() == b"value"
