"""``hanglab entries`` on Cases: what a buffer of gloo leaves out, the recorder saw."""

from __future__ import annotations

from pathlib import Path

import pytest
from installed import needs_torch
from recording_support import hanglab, program

from hanglab.harness.cli import main
from hanglab.harness.corpus.entries import unpack_entry
from tools.corpus.__main__ import CORPUS


def test_sends_and_receives_of_gloo_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = tmp_path / "case"
    unpack_entry(CORPUS, "local/p2p_unmatched.fault", case)
    assert main(["entries", "--unfinished", str(case)]) == 0
    shown = capsys.readouterr().out
    assert "recv 1->2 [32,64] Float" in shown and "recv 2->3 [32,64] Float" in shown
    assert main(["entries", "--group", "default_pg", "--seq", "1-5", str(case)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("all_reduce [1] Float completed") == 20 and "scheduled" not in shown


@pytest.mark.slow
@needs_torch
def test_operations_have_the_names_that_they_were_called_by(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = tmp_path / "case"
    command = program("scattering_program.py", str(tmp_path / "store"))
    done = hanglab("record", "--out", case, "--", *command, cwd=tmp_path, RANK="0", WORLD_SIZE="1")
    assert done.returncode == 0, done.stderr
    assert main(["entries", str(case)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("reduce_scatter") == 3 and shown.count("all_reduce") == 3
