"""The source of a program's functions that a Case keeps, and what is kept in its place."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hanglab.recorder.agent.sources import functions_of
from hanglab.recorder.case.records import SourceFunction

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
