from __future__ import annotations

from pathlib import Path

import pytest

from hanglab.recorder.profiling.hosts import NoHosts, from_hostfile, from_names, from_slurm


@pytest.mark.parametrize(
    ("names", "hosts"),
    [
        (["a,b", "a"], ["a", "b"]),
        (["gpu[08-10,12]"], ["gpu08", "gpu09", "gpu10", "gpu12"]),
        (["r[1-2]n[1-2]"], ["r1n1", "r1n2", "r2n1", "r2n2"]),
        (["a[1,3]-ib,b"], ["a1-ib", "a3-ib", "b"]),
        (["host:1779"], ["host:1779"]),
    ],
)
def test_names_are_unfolded(names: list[str], hosts: list[str]) -> None:
    assert from_names(names) == hosts


@pytest.mark.parametrize("name", ["a b", "x[1-9999999]", "x[a]", "-o", "a;rm"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(NoHosts):
        from_names([name])


def test_hostfile(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# nodes\nn1 slots=8\n\nn2:1779 # the second\n")
    assert from_hostfile(path) == ["n1", "n2:1779"]


def test_hostfile_that_is_missing_or_empty(tmp_path: Path) -> None:
    with pytest.raises(NoHosts, match="cannot be read"):
        from_hostfile(tmp_path / "none")
    (tmp_path / "empty").write_text("# nothing\n")
    with pytest.raises(NoHosts, match="names no host"):
        from_hostfile(tmp_path / "empty")


def test_slurm_is_asked_for_the_hosts_of_an_array_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Stands in for SLURM's squeue, which cannot be had here; it prints what that prints.
    squeue = tmp_path / "squeue"
    squeue.write_text('#!/bin/sh\n[ "$3" = 1234_7 ] && echo "gpu[01-02]"\n')
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert from_slurm("1234_7") == ["gpu01", "gpu02"]
    with pytest.raises(NoHosts):
        from_slurm("99")


def test_without_slurm_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoHosts, match="squeue"):
        from_slurm("1")
