"""Counts of the statements of a script that runs without any ranks beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from installed import needs_torch

from hanglab.harness.mutation.mutant import support_file
from hanglab.harness.mutation.statement_counts import CountingError, Profile

SOURCE = """\
import contextlib
import torch


def step(number):
    with contextlib.nullcontext():
        values = [one for one in range(
            number
        )]
    return sum(one for one in values)


for number in range(3):
    step(
        number,
    )
"""


@needs_torch
@pytest.mark.long
def test_a_statement_counts_once_each_time_whatever_lines_and_frames_it_has(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SOURCE)
    subprocess.run(
        [sys.executable, str(support_file("counting_program.py")), str(script)],
        env={**os.environ, "RANK": "0", "HANGLAB_MUTATION_TRUTH": str(tmp_path)},
        check=True,
        timeout=280,
    )
    profile = Profile.read(tmp_path, 1)
    hits = {line: profile.at(line, 0).hits for line in (6, 7, 10, 13, 14)}
    assert hits == {6: 3, 7: 3, 10: 3, 13: 4, 14: 3}
    assert not profile.communicates(14)


def test_a_rank_without_counts_is_named(tmp_path: Path) -> None:
    with pytest.raises(CountingError, match="Rank 0 left no count"):
        Profile.read(tmp_path, 1)
