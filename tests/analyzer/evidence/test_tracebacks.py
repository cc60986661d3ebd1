"""Tracebacks are read back from what Python really printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hanglab.analyzer.evidence.tracebacks import printed_tracebacks

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
