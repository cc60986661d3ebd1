"""What threads and programs beside a rank's operation do is no movement."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from installed import needs_torch
from recording_support import PROGRAMS, hanglab, trigger_of

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.verdict import Status

pytestmark = needs_torch


@pytest.mark.parametrize("how", ["left_out", "locked"])
def test_a_job_hangs_though_a_thread_of_each_rank_goes_on_logging(tmp_path: Path, how: str) -> None:
    """In a lock a rank may wait for that thread: what it logs is movement for longer."""
    case = tmp_path / "case"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command = [*launcher, "--standalone", str(PROGRAMS / "logging_program.py")]
    command += [str(tmp_path), how]
    done = hanglab("record", "--out", case, "--hang-after", "1", "--", *command, cwd=tmp_path)
    assert done.returncode == 124, done.stderr
    assert trigger_of(case)[0] == "no_progress"
    assert (tmp_path / "log-0").read_text().count("alive") > 2
    assert not (tmp_path / "log-0.over").exists()
    found = analyze(case)
    assert (found.status, found.culprits) == (Status.HUNG, [1])
