"""The folders of runs."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from hanglab.harness.jobs.run_folder import ArtifactsError, RunFolder, write_json


def test_runs_at_the_same_moment_never_share_a_folder(tmp_path: Path) -> None:
    folders: list[Path] = []
    start = threading.Barrier(8)

    def create() -> None:
        start.wait()
        folders.append(RunFolder.create(tmp_path / "runs").path)

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(folders)) == 8
    latest = tmp_path / "runs" / "latest"
    assert latest.is_symlink()
    assert latest.resolve() in folders
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {
        *(folder.name for folder in folders),
        "latest",
    }


def test_a_job_has_its_place(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path)
    job = run.job("some_scenario", "control", 2)
    assert job.case == run.path / "some_scenario" / "control" / "2" / "case"
    assert job.case.stat().st_mode & 0o777 == 0o700
    assert job.log.is_dir()


def test_a_folder_that_cannot_be_made_is_told_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(ArtifactsError) as caught:
        RunFolder.create(tmp_path / "runs")
    assert caught.value.advice


def test_json_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "truth.json"
    write_json(path, {"a": 1})
    write_json(path, {"a": [2]})
    assert json.loads(path.read_text()) == {"a": [2]}
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ArtifactsError):
        write_json(tmp_path / "none" / "truth.json", {})
