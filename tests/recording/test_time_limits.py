"""Jobs whose own time limits strike before they rest for as long as a hang takes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from installed import needs_torch
from recording_support import PROGRAMS, hanglab, trigger_of

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.verdict import Cause, Status

pytestmark = needs_torch


@pytest.mark.parametrize("calls", ["model", "plain"])
def test_the_rank_that_others_lost_patience_with_is_captured_alive(
    tmp_path: Path, calls: str
) -> None:
    """Once those that raised have ended, torchrun ends it, too: its line would be gone."""
    case = tmp_path / "case"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3"]
    command = [*launcher, "--standalone", str(PROGRAMS / "impatient_program.py"), calls]
    done = hanglab("record", "--out", case, "--hang-after", "30", "--", *command, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    kind, detail = trigger_of(case)
    assert kind == "timeout_dump" and detail.startswith("a time limit struck on rank ")
    found = analyze(case)
    assert (found.status, found.cause, found.culprits) == (Status.FAILED, Cause.MISSING_RANK, [1])
    assert found.location is not None and found.location.line == 17
