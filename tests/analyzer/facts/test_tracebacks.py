"""Tracebacks are read back from what Python really printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hanglab.analyzer.facts.tracebacks import fatal_error, printed_tracebacks

PROGRAM = """
import logging

def inner(n):
    raise ValueError(f"bad\\nlabel {n}")

def outer():
    inner(7)

try:
    outer()
except ValueError:
    logging.exception("skipped")

raise KeyError("late")
"""


def test_every_printed_traceback_is_found_in_order(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    first, last = printed_tracebacks(done.stderr)
    assert (first.type, first.message) == ("ValueError", "bad")
    assert [f.function for f in first.frames] == ["inner", "outer", "<module>"]
    assert first.frames[0].file == str(script)
    assert first.frames[0].line == 5
    assert last.type == "KeyError"


def test_torchrun_prefixes_and_cut_tails_are_no_obstacle() -> None:
    text = (
        'e most recent call last):\n  File "x.py", line 1, in f\nOops: cut\n'
        "[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "/a/train.py", line 3, in <module>\n'
        "[rank1]:     main()\n"
        "[rank1]: torch.distributed.DistBackendError: NCCL error\n"
    )
    (only,) = printed_tracebacks(text)
    assert only.type == "torch.distributed.DistBackendError"
    assert only.frames[0].line == 3


FATAL = """\
[rank1]: Fatal Python error: Segmentation fault
[rank1]:
[rank1]: Thread 0x00007f0000000001 (most recent call first):
[rank1]:   File "/home/me/other.py", line 1 in run
[rank1]:
[rank1]: Current thread 0x00007f0000000002 (most recent call first):
[rank1]:   File "/home/me/train.py", line 9 in boom
[rank1]:   File "/home/me/train.py", line 20 in main

[rank1]: Extension modules: numpy
"""


def test_faulthandler_names_the_thread_that_died() -> None:
    fatal = fatal_error(FATAL)
    assert fatal is not None and fatal.message == "Segmentation fault"
    assert [(f.function, f.line) for f in fatal.frames] == [("boom", 9), ("main", 20)]


def test_without_its_words_there_is_none() -> None:
    assert fatal_error(FATAL.replace("Fatal Python error", "Note")) is None
