"""The source of a program's functions that a Case keeps, and what is kept in its place."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from hanglab.recorder.agent.sources import functions_of, source_functions
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.records import (
    Clock,
    ProgramEnd,
    SourceFunction,
    StackFrame,
    StackSample,
    ThreadStack,
)
from hanglab.recorder.case.user_code import UserCode

TEXT = '''"""About the file."""
import os  # why

STEPS = [step for step in range(8)]


@scenario(expect="a fault")
def train(rank):
    """About the function."""
    for step in STEPS:  # FAULT
        if rank != 1:
            reduce(step, "# no comment")


class Loop:
    """About the class."""

    def run(self, rank):
        def inner():
            return rank  # inner

        return train(rank) or inner()


def start(rank):
    Loop().run(rank)


def finish(rank):
    return rank
'''


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(TEXT.splitlines(), 1) if text in line)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(TEXT)
    return path


def kept(file: Path, *places: tuple[str, str], started_ns: int | None = None) -> dict[str, str]:
    """Text by function, for the lines that hold a text; where there is none, why."""
    functions: list[SourceFunction] = functions_of(
        str(file),
        [(name, line_of(text)) for name, text in places],
        time.time_ns() + 10**9 if started_ns is None else started_ns,
    )
    return {one.function: one.absent or "\n".join(one.lines) for one in functions}


def test_a_function_is_kept_without_what_only_people_read(program):
    text = kept(program, ("train", "reduce("))["train"]
    assert text.startswith("def train(rank):\n    pass\n    for step in STEPS:\n")
    assert "FAULT" not in text and "expect" not in text and "About" not in text
    assert '"# no comment"' in text, "what stands in a string runs"


def test_lines_keep_their_numbers(program):
    [one, _] = functions_of(str(program), [("train", line_of("reduce("))], time.time_ns() + 10**9)
    lines = TEXT.splitlines()
    for number, line in enumerate(one.lines, one.first_line):
        assert not line or line.strip() == "pass" or lines[number - 1].startswith(line)


def test_who_calls_a_function_of_the_file_by_name_is_kept_too(program):
    assert set(kept(program, ("inner", "# inner"))) == {"inner", "run"}
    # Whose method `run` is, its name alone does not tell.
    assert set(kept(program, ("train", "reduce("))) == {"train", "run"}


def test_code_of_the_file_itself_is_kept_without_its_functions(program):
    text = kept(program, ("<module>", "STEPS = "))["<module>"]
    assert "STEPS = [step for step in range(8)]" in text
    assert "reduce" not in text and "return" not in text and "scenario" not in text


def test_a_file_that_changed_after_its_rank_started_is_not_what_runs(program):
    started_ns = program.stat().st_ctime_ns - 1
    found = kept(program, ("train", "reduce("), started_ns=started_ns)
    assert found == {"train": "the file was changed since the job started"}
    # An editor may give a file its old time back.
    os.utime(program, ns=(0, 0))
    assert kept(program, ("train", "reduce("), started_ns=started_ns) == found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"def train(:\n", "the file holds no Python source"),
        (b"\x7fELF\x00\x00", "the file holds no Python source"),
        (b"# " + b"x" * (1 << 20) + b"\n", "the file has more than 1 MiB"),
    ],
)
def test_what_is_no_source_is_said(tmp_path, text, reason):
    path = tmp_path / "train.so"
    path.write_bytes(text)
    [one] = functions_of(str(path), [("train", 1)], time.time_ns() + 10**9)
    assert (one.function, one.lines, one.absent) == ("train", [], reason)


def test_a_file_that_is_gone_or_was_never_there_is_said(tmp_path):
    [one] = functions_of(str(tmp_path / "none.py"), [("train", 1)], time.time_ns())
    assert one.absent == "the file cannot be read: No such file or directory"


def test_lines_of_workers_and_of_who_ended_itself_are_kept(tmp_path, program):
    """What a data loader's worker stands in, and what a rank that is gone called last."""
    at = Clock(time.time_ns(), 1)
    stood = StackFrame("inner", str(program), line_of("# inner"))
    called = StackFrame("finish", str(program), line_of("def finish") + 1)
    sample = StackSample(at, 7, "worker", [ThreadStack([stood], name="MainThread", main=True)])
    end = ProgramEnd(at, "os._exit", 3, called)
    folder = tmp_path / "0.0"
    folder.mkdir()
    (folder / files.STACKS.name).write_bytes(msgspec.json.encode(sample) + b"\n")
    (folder / files.PROGRAM_ENDS.name).write_bytes(msgspec.json.encode(end) + b"\n")
    process = SimpleNamespace(
        python=SimpleNamespace(site=[]), started=Clock(time.time_ns() + 10**9, 1)
    )
    rank = SimpleNamespace(
        folder=folder, rank=0, attempt=0, process=process, user_code=UserCode([], [], [])
    )
    assert {"inner", "finish"} <= {one.function for one in source_functions([rank])}
