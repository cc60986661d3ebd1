from __future__ import annotations

from pathlib import Path

import pytest

from hanglab.recorder.profiling.hosts import (
    NoHosts,
    from_hostfile,
    from_names,
    from_slurm,
    slurm_number,
)


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


#: Stands in for SLURM's squeue, which cannot be had here; it prints what that prints for an
#: array job 1234 whose seventh task, job 1241, runs on two hosts.
SQUEUE = """#!/bin/sh
[ "$1" = --noheader ] && [ "$3" = --format ] || exit 2
case "$2 $4" in
    "--jobs=1234_7 %N") echo "gpu[01-02]" ;;
    "--jobs=1234_7 %A") echo 1241 ;;
    "--jobs=1234 %N") printf 'gpu[01-02]\\ngpu02,login\\n\\n' ;;
    "--jobs=1234 %A") printf '1241\\n1242\\n1234\\n' ;;
    "--jobs=77 %N") echo ;;
    *) echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1 ;;
esac
"""


@pytest.fixture
def squeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "squeue"
    program.write_text(SQUEUE)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


@pytest.mark.usefixtures("squeue")
def test_slurm_is_asked_for_the_hosts_of_an_array_task() -> None:
    assert from_slurm("1234_7") == ["gpu01", "gpu02"]


@pytest.mark.usefixtures("squeue")
def test_all_tasks_of_an_array_have_hosts_together() -> None:
    assert from_slurm("1234") == ["gpu01", "gpu02", "login"]


@pytest.mark.usefixtures("squeue")
def test_job_that_waits_or_is_unknown_has_no_hosts() -> None:
    with pytest.raises(NoHosts, match="not have started yet"):
        from_slurm("77")
    with pytest.raises(NoHosts, match="Invalid job id"):
        from_slurm("99")


@pytest.mark.usefixtures("squeue")
def test_array_task_has_a_number_of_its_own() -> None:
    # Processes know it by that: SLURM_JOB_ID.
    assert slurm_number("1234_7") == 1241
    assert slurm_number("1234") == 1234
    with pytest.raises(NoHosts, match="Invalid job id"):
        slurm_number("1234_9")


def test_without_slurm_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoHosts, match="squeue"):
        from_slurm("1")
