"""Units that start a watch, by the programs that read them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hanglab.harness.watching.units import unit


def test_the_prolog_is_a_shell_script_that_cannot_fail(tmp_path: Path) -> None:
    text = unit("slurm")
    subprocess.run(["sh", "-n"], input=text, text=True, check=True)
    assert text.rstrip().endswith("exit 0")


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze: apt install systemd"
)
def test_the_unit_is_one_of_systemds(tmp_path: Path) -> None:
    path = tmp_path / "hanglab-watch.service"
    path.write_text(unit("systemd"))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, check=False
    )
    said = [line for line in checked.stderr.splitlines() if path.name in line]
    assert not said, said
