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


needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze: apt install systemd"
)


def verified(folder: Path, text: str) -> list[str]:
    """All that systemd has to say of a unit."""
    path = folder / "hanglab-watch.service"
    path.write_text(text)
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, check=False
    )
    # What is wrong with other units of this machine is none of ours.
    return [line for line in checked.stderr.splitlines() if path.name in line]


@needs_systemd
def test_the_unit_is_one_of_systemds(tmp_path: Path) -> None:
    assert not verified(tmp_path, unit("systemd"))


@needs_systemd
@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("ProtectSystem=strict", "ProtectSystem=very"),
        ("RestartSec=", "RestartSeconds="),
        (" watch --metrics", "-that-nobody-installed watch --metrics"),
    ],
)
def test_systemd_says_what_is_wrong_with_a_unit(tmp_path: Path, good: str, bad: str) -> None:
    text = unit("systemd")
    assert good in text
    assert verified(tmp_path, text.replace(good, bad))


@needs_systemd
def test_the_unit_leaves_the_watch_few_rights(tmp_path: Path) -> None:
    path = tmp_path / "hanglab-watch.service"
    path.write_text(unit("systemd"))
    words = ["systemd-analyze", "security", "--no-pager", "--offline=yes"]
    for most, good in (("55", True), ("10", False)):
        judged = subprocess.run(
            [*words, f"--threshold={most}", path], capture_output=True, text=True, check=False
        )
        if "unrecognized option" in judged.stderr:
            pytest.skip("systemd-analyze security reads no files before version 250")
        assert (judged.returncode == 0) == good, judged.stdout
