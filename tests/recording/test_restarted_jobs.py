"""Jobs whose launcher starts their ranks anew."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from installed import needs_torch
from recording_support import PROGRAMS, hanglab, trigger_of

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.verdict import Cause, Status

pytestmark = needs_torch


@pytest.mark.parametrize("then", ["hang", "raise", "end"])
def test_what_a_later_attempt_does_is_captured(tmp_path: Path, then: str) -> None:
    """The end of the first attempt was captured; what its launcher started anew is the job."""
    case = tmp_path / "case"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    launcher += ["--standalone", "--max-restarts", "1"]
    command = [*launcher, str(PROGRAMS / "restarted_program.py"), then, str(tmp_path / "store")]
    done = hanglab("record", "--out", case, "--hang-after", "2", "--", *command, cwd=tmp_path)
    kind, detail = trigger_of(case)
    found = analyze(case)
    told = (found.status, found.cause, found.culprits)
    if then == "hang":
        assert done.returncode == 124, done.stderr
        assert (kind, detail) == ("no_progress", "")
        assert told == (Status.HUNG, Cause.MISSING_RANK, [1])
        assert found.location is not None and found.location.line == 19
    elif then == "raise":
        assert told == (Status.FAILED, Cause.EXCEPTION, [1])
        assert "the second attempt" in found.summary
    else:
        assert (done.returncode, kind) == (0, ""), done.stderr
        assert found.status is Status.HEALTHY
