"""The room that a Case takes, and whose words it keeps."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from installed import needs_torch
from recording_support import HANGLAB, PATIENCE, environment, program

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import CaseReader

pytestmark = needs_torch


@pytest.mark.slow
def test_a_hang_whose_output_goes_to_a_file(tmp_path: Path) -> None:
    """hanglab and the job then write into one file, and the Case keeps what the job wrote."""
    case, log = tmp_path / "case", tmp_path / "log"
    command = program("spawned_program.py", "hang", str(tmp_path / "store"))
    words = [*HANGLAB, "record", "--out", str(case), "--hang-after", "2", "--"]
    with log.open("w") as file:
        print("before the job", file=file, flush=True)
        code = subprocess.call(
            [*words, "sh", "-c", 'echo "of the job" >&2; exec "$@"', "sh", *command],
            cwd=tmp_path,
            env=environment(),
            stdout=file,
            stderr=file,
            timeout=PATIENCE,
        )
    assert code == 124, log.read_text()
    assert "╭─ verdict: hung" in log.read_text() and "the Case is" in log.read_text()
    reader = CaseReader(case)
    (host,) = reader.hosts.values()
    kept = host.read(files.HOST_STDERR)
    assert "of the job" in kept
    assert "verdict" not in kept and "the Case is" not in kept and "before" not in kept
    for rank in reader.ranks:
        progress = rank.read(files.PROGRESS)
        assert progress is not None and progress.operations
        for name in files.PROGRESS.names:
            status = (rank.folder / name).stat()
            assert status.st_blocks * 512 < status.st_size / 4, "a small job used little of it"
