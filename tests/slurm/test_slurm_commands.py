"""Slurm's commands as hanglab asks them, on a real Slurm of two nodes, and without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from hanglab.harness.capabilities.slurm import _slurm
from hanglab.harness.launchers.slurm.commands import ask, own_environment
from hanglab.harness.launchers.slurm.errors import NoController, NoSlurm, NotSubmitted
from tools.slurm_cluster import SlurmCluster


def test_capability_tells_version_and_partitions(cluster: SlurmCluster) -> None:
    found = _slurm()
    assert found.available
    assert "answers, with closed, main, urgent" in found.reason


def test_wrong_partition_is_told_in_one_sentence(cluster: SlurmCluster) -> None:
    with pytest.raises(NotSubmitted) as raised:
        ask("sbatch", "--partition=nowhere", "--wrap=true")
    assert str(raised.value) == "sbatch says: invalid partition specified: nowhere."
    assert "sinfo" in raised.value.advice


def test_without_slurm_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoSlurm, match="Slurm's command sinfo is not installed here"):
        ask("sinfo")
    assert not _slurm().available


def test_controller_that_is_away_is_told(
    cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    configuration = tmp_path / "slurm.conf"
    text = cluster.configuration.read_text()
    port = next(line for line in text.splitlines() if line.startswith("SlurmctldPort="))
    # Nothing listens there; Slurm tries so often before it gives up.
    configuration.write_text(text.replace(port, "SlurmctldPort=1\nMessageTimeout=2"))
    monkeypatch.setenv("SLURM_CONF", str(configuration))
    with pytest.raises(NoController, match="controller cannot be asked"):
        ask("sinfo")


def test_a_job_around_hanglab_sets_no_options_of_its_own_jobs() -> None:
    around = {"SLURM_NTASKS": "7", "SLURM_CONF": "/etc/c", "SBATCH_PARTITION": "p", "HOME": "/h"}
    assert own_environment(around) == {
        "SLURM_CONF": "/etc/c", "SBATCH_PARTITION": "p", "HOME": "/h",
    }  # fmt: skip
