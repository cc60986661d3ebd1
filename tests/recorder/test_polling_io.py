"""What a rank that polls says while it waits is no movement; what else it reads and writes is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from hanglab.recorder.agent.io_bytes import IoBytes

#: Writes as many bytes as it is told, on its main thread or on another one, and says so.
PROGRAM = """
import sys, threading
out = open(sys.argv[1], "wb", buffering=0)
asked, answers, done = threading.Event(), [0], threading.Event()
def other():
    while asked.wait():
        asked.clear(); out.write(b"x" * answers[0]); done.set()
threading.Thread(target=other, daemon=True).start()
for line in sys.stdin:
    who, number = line.split()
    if who == "main":
        out.write(b"x" * int(number))
    else:
        done.clear(); answers[0] = int(number); asked.set(); done.wait()
    sys.stdout.write("."); sys.stdout.flush()
"""


class Writer:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid
        assert process.stdin is not None and process.stdout is not None
        self._in: IO[str] = process.stdin
        self._out: IO[str] = process.stdout

    def write(self, who: str, number: int) -> None:
        self._in.write(f"{who} {number}\n")
        self._in.flush()
        assert self._out.read(1) == "."


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "out")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        told = Writer(process)
        told.write("main", 1)
        told.write("other", 1)
        yield told
        process.kill()


@pytest.mark.parametrize(
    ("polling", "who", "number", "moved"),
    [
        (False, "main", 60, True),
        (True, "main", 60, False),
        (True, "main", 100_000, True),
        (True, "other", 60, True),
    ],
)
def test_lines_of_a_main_thread_that_polls_are_no_movement(
    writer: Writer, polling: bool, who: str, number: int, moved: bool
) -> None:
    traffic = IoBytes(writer.pid)
    assert not traffic.moved([], polling)
    assert not traffic.moved([], polling)
    for _ in range(2):
        writer.write(who, number)
        assert traffic.moved([], polling) is moved


def test_the_first_look_after_it_began_or_ended_to_poll_compares_with_nothing(
    writer: Writer,
) -> None:
    traffic = IoBytes(writer.pid)
    assert not traffic.moved([], False)
    for polling in (True, False):
        writer.write("other", 60)
        assert not traffic.moved([], polling)
        writer.write("other", 60)
        assert traffic.moved([], polling)
