"""``hanglab capture --all``, among processes of its own: other jobs of this host are left alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from installed import needs_torch
from recording_support import PATIENCE, PROGRAMS, environment

from hanglab.recorder.case.reader import CaseReader

pytestmark = [
    needs_torch,
    pytest.mark.skipif(
        os.geteuid() != 0,
        reason="needs a namespace of processes: run as root (--cap-add SYS_ADMIN)",
    ),
]

#: Two jobs of two ranks that hang; the second one's Case cannot be written.
_SCRIPT = """
for job in one two; do
    "$PYTHON" "$PROGRAM" hang "$PWD/$job" 2>/dev/null &
done
until [ -e one.hangs ] && [ -e two.hangs ]; do sleep 0.05; done
mkdir -p cases/1 && touch cases/1/occupied
"$PYTHON" -m hanglab.harness.cli capture --all --watch 1 --out cases
"""


@pytest.mark.slow
def test_every_job_gets_a_case_and_one_that_cannot_costs_only_itself(tmp_path: Path) -> None:
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", _SCRIPT],
        cwd=tmp_path,
        env=environment(PYTHON=sys.executable, PROGRAM=str(PROGRAMS / "spawned_program.py")),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 64, done.stderr
    assert "hanglab: job 1 of 2 is watched" in done.stderr
    assert "cases/1 is not empty" in done.stderr and "Traceback" not in done.stderr
    assert [rank.rank for rank in CaseReader(tmp_path / "cases" / "0").ranks] == [0, 1]
    assert os.listdir(tmp_path / "cases" / "1") == ["occupied"]
