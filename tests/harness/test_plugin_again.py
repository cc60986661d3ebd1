"""Items that run once more within one run of pytest: tried again, or sent to several workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from plugin_support import SOUND, junit_properties, run_pytest, write

#: Does nothing wrong until it has run once.
SECOND_TRY = (
    "import os, pathlib\n"
    + SOUND.format(name="fickle").replace(
        "job.rank == 1 and", "pathlib.Path(os.environ['TRIED']).exists() and job.rank == 1 and"
    )
    + "    pathlib.Path(os.environ['TRIED']).touch()\n"
)
TRAIN = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
"""
TESTS = """
import pathlib

def test_second_try(hanglab_job):
    job = hanglab_job("train.py", world_size=1)
    pathlib.Path("tries").open("a").write(f"{job.folder}\\n")
    assert len(pathlib.Path("tries").read_text().splitlines()) == 2
"""


def results(folder: Path) -> list[dict[str, object]]:
    content = json.loads((folder / "kept/latest/results.json").read_text())
    found: list[dict[str, object]] = content["results"]
    return found


@pytest.mark.slow
def test_an_item_that_is_tried_again_has_the_outcome_of_its_last_try(tmp_path: Path) -> None:
    write(tmp_path, "hanglab_fickle.py", SECOND_TRY)
    options = ["-k", "fault", "--hanglab-artifacts=kept", "--junitxml=junit.xml", "-rR"]
    ran = run_pytest(tmp_path, "--reruns=2", *options, changes={"TRIED": str(tmp_path / "tried")})
    assert ran.code == 0, ran.out
    assert "1 passed, 1 deselected, 1 rerun" in ran.out
    assert "1 job: 1 pass\n" in ran.out
    properties = junit_properties(tmp_path / "junit.xml")["fickle[fault-gloo-local-2]"]
    assert (properties["outcome"], properties["reason"]) == ("pass", "")
    (result,) = results(tmp_path)
    assert result["outcome"] == "pass"
    assert properties["artifacts"] == result["artifacts"]
    last = Path(str(result["artifacts"]))
    first = last.with_name("0")
    assert last.name == "0-2"
    assert json.loads((first / "truth.json").read_text())["outcome"] == "not reproduced"
    assert (first / "case/manifest.json").is_file()


@pytest.mark.long
def test_the_last_of_several_failed_tries_counts_once(tmp_path: Path) -> None:
    body = SOUND.format(name="never").replace("if not (job.faulty", "if not (False")
    write(tmp_path, "hanglab_never.py", body)
    ran = run_pytest(tmp_path, "-k", "fault", "--reruns=1", "--hanglab-artifacts=kept")
    assert ran.code == 1, ran.out
    assert "1 job: 1 not reproduced\n" in ran.out
    assert "of 2 passed" not in ran.out
    assert [result["outcome"] for result in results(tmp_path)] == ["not reproduced"]


@pytest.mark.long
def test_each_of_several_workers_runs_every_item_in_a_folder_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, "hanglab_sound.py", SOUND.format(name="sound"))
    ran = run_pytest(tmp_path, "--dist=each", "--tx=2*popen", "--hanglab-artifacts=kept")
    assert ran.code == 0, ran.out
    assert "4 jobs: 4 pass" in ran.out
    assert "sound control (gloo, local, 2 ranks): 2 of 2 passed" in ran.out
    folders = {str(result["artifacts"]) for result in results(tmp_path)}
    assert {Path(folder).name for folder in folders} == {"0", "0-2"}
    assert len(folders) == 4


@pytest.mark.slow
def test_a_test_that_is_tried_again_runs_its_job_again(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "test_own.py").write_text(TESTS)
    ran = run_pytest(tmp_path, "--reruns=1")
    assert ran.code == 0, ran.out
    first, second = (tmp_path / "tries").read_text().splitlines()
    assert Path(first).name == "0"
    assert second == f"{first}-2"
