"""A real Slurm of two nodes for the tests of this folder, which one worker runs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.slurm_cluster import SlurmCluster, missing


@pytest.fixture(scope="session")
def running_cluster() -> Iterator[SlurmCluster]:
    if reason := missing():
        pytest.skip(reason)
    # Its sockets need short paths, and munge folders that nobody else may write to.
    folder = Path(tempfile.mkdtemp(prefix="hl-slurm-"))
    try:
        with SlurmCluster(folder) as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def cluster(running_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> SlurmCluster:
    """The cluster, to which Slurm's commands are led."""
    monkeypatch.setenv("SLURM_CONF", running_cluster.environment["SLURM_CONF"])
    return running_cluster
