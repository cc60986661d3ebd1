"""Tracebacks are read back from what Python really printed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hanglab.analyzer.logs.tracebacks import fatal_error, printed_tracebacks

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


RAISING = "def step(n):\n    raise KeyError(n)\n\n"
PRINTED = {
    "behind a progress bar": (
        'import sys\nsys.stderr.write("  8%| 31/401 [00:41<08:14]")\nstep(7)',
        6,
    ),
    "rich": ("import rich.traceback\nrich.traceback.install()\nstep(7)", 6),
    "group": ('try:\n    step(7)\nexcept KeyError as e:\n    raise ExceptionGroup("some", [e])', 5),
}


@pytest.mark.parametrize("how", PRINTED)
def test_what_else_prints_a_traceback(how: str, tmp_path: Path) -> None:
    if how == "group" and sys.version_info < (3, 11):
        pytest.skip("Python 3.10 has no groups of exceptions")
    lines, at = PRINTED[how]
    script = tmp_path / "train.py"
    script.write_text(RAISING + lines)
    wide = os.environ | {"COLUMNS": "200"}  # rich breaks a long path anywhere
    run = [sys.executable, str(script)]
    done = subprocess.run(run, capture_output=True, text=True, env=wide)
    last = printed_tracebacks(done.stderr)[-1]
    assert (last.type, last.message) == ("KeyError", "7")
    assert [(frame.function, frame.line) for frame in last.frames] == [
        ("step", 2),
        ("<module>", at),
    ]


def test_a_file_that_cannot_be_compiled(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("x = 1\ndef f(:\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    (only,) = printed_tracebacks(done.stderr)
    assert only.type == "SyntaxError"
    assert [(frame.file, frame.line) for frame in only.frames] == [(str(script), 2)]


def test_a_logger_draws_values_below_the_lines() -> None:
    """As loguru prints it, which is not installed here."""
    text = (
        "2025-11-29 11:46:57.123 | ERROR    | __main__:<module>:40 - An error has been caught\n"
        "Traceback (most recent call last):\n\n"
        '> File "/w/train.py", line 40, in <module>\n    main()\n    └ <function main at 0x7f>\n\n'
        "  File \"/w/train.py\", line 30, in main\n    x = d['k']\n        └ {}\n\nKeyError: 'k'\n"
    )
    (only,) = printed_tracebacks(text)
    assert (only.type, [frame.line for frame in only.frames]) == ("KeyError", [30, 40])


@pytest.mark.parametrize("prefix", ["", "[rank1]: "])
def test_what_nccl_says_behind_its_first_line_is_part_of_the_message(prefix: str) -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/w/train.py", line 180, in main',
        "    dist.all_reduce(t)",
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/NCCLUtils.hpp:317, unhandled",
        "ncclUnhandledCudaError: Call to CUDA function failed.",
        "Last error:",
        "Cuda failure 2 'out of memory'",
        "[W1129 11:46:58 TCPStore.cpp:106] [c10d] sendBytes failed",
    ]
    (only,) = printed_tracebacks("".join(f"{prefix}{line}\n" for line in lines))
    assert only.message.splitlines()[1:] == lines[4:7]
