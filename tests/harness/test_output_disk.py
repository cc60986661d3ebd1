"""What the command says where its output has no room."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DUMPS = Path(__file__).parents[1] / "data" / "dumps" / "gloo" / "stacks"


@pytest.mark.parametrize("command", [["analyze"], ["analyze", "--json"], ["entries"]])
def test_a_full_disk_is_told_without_a_traceback(command: list[str]) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "hanglab.harness.cli", *command, str(DUMPS)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert ended.returncode == 4
    assert "No space left on device" in ended.stderr
    assert "Free some space" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = [sys.executable, "-m", "hanglab.harness.cli", "analyze", "--json", str(DUMPS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        assert started.stdout is not None and started.stderr is not None
        first = started.stdout.read(1)
        started.stdout.close()
        assert started.stderr.read() == b""
        assert started.wait(120) in (0, 1)
    assert first == b"{"
