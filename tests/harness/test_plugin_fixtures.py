"""hanglab_job, hanglab_case and assert_verdict in a user's own tests."""

from __future__ import annotations

import shutil

import pytest
from plugin_support import SOUND, Ran, run_pytest, write

TRAIN = """
import os, sys
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
for step in range(8):
    if not (os.environ["HANGLAB_FAULT"] == "1" and dist.get_rank() == 1 and step == 5):
        dist.all_reduce(torch.ones(4))
    dist.broadcast(torch.zeros(2), src=0)
print("done with", sys.argv[1:])
dist.destroy_process_group()
"""
TESTS = """
def test_sound(hanglab_job, assert_verdict):
    job = hanglab_job("train.py", world_size=2, variant="control", arguments=["x"])
    assert_verdict(job, status="healthy")
    assert job.output(0) == "done with ['x']\\n"
    assert [rank.rank for rank in job.evidence.ranks] == [0, 1]

def test_stuck(hanglab_job, hanglab_case, assert_verdict):
    job = hanglab_job("train.py", world_size=2, hang_after=1.5)
    wanted = dict(cause="skipped_collective", culprits={1}, location="train.py:9")
    assert_verdict(job, **wanted)
    assert_verdict(hanglab_case(job.path), **wanted)

def test_wrong(hanglab_job, assert_verdict):
    job = hanglab_job("train.py", world_size=2, hang_after=1.5)
    assert_verdict(job, cause="group_order", culprits={0, 1}, confidence=0.99999)

def test_declared(hanglab_job):
    assert hanglab_job("declared.py").outcome.value == "pass"

def test_absent(hanglab_case):
    hanglab_case("no_such_folder")

def test_contained(hanglab_job):
    hanglab_job("train.py", launcher="docker")

def test_odd_launcher(hanglab_job):
    hanglab_job("train.py", launcher="ssh")

def test_nothing_expected(hanglab_job, assert_verdict):
    assert_verdict(hanglab_job("train.py", world_size=2, variant="control", arguments=["x"]))
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("fixtures")
    (folder / "tests").mkdir()
    (folder / "tests/train.py").write_text(TRAIN)
    write(folder, "tests/declared.py", SOUND.format(name="declared"))
    (folder / "tests/test_own.py").write_text(TESTS)
    done = run_pytest(folder, "-v", changes={"DOCKER_HOST": "unix:///nowhere/docker.sock"})
    assert (folder / "runs").is_dir()
    shutil.rmtree(folder / "runs")
    return done


@pytest.mark.slow
@pytest.mark.parametrize("name", ["test_sound", "test_stuck", "test_declared"])
def test_what_is_as_expected_passes(ran: Ran, name: str) -> None:
    assert f"tests/test_own.py::{name} PASSED" in ran.out, ran.out


@pytest.mark.parametrize(
    "name", ["test_wrong", "test_absent", "test_nothing_expected", "test_odd_launcher"]
)
def test_what_is_not_fails(ran: Ran, name: str) -> None:
    assert f"tests/test_own.py::{name} FAILED" in ran.out, ran.out


def test_what_the_machine_cannot_run_is_skipped(ran: Ran) -> None:
    assert "tests/test_own.py::test_contained SKIPPED (needs docker: " in ran.out, ran.out
    assert "There is no launcher ssh." in ran.out


def test_the_difference_is_shown(ran: Ran) -> None:
    text = ran.out[ran.out.index("the verdict is another one") :]
    assert "> cause       group_order   skipped_collective" in text
    assert "> culprits    0, 1          1" in text
    assert "> confidence  1.00" in text
    assert "rank 1: called broadcast" in text
    assert "artifacts  /" in text


def test_a_folder_that_is_none_is_told(ran: Ran) -> None:
    assert "no_such_folder does not exist.  Check the path." in ran.out
    # Of the frames only the test's own is shown.
    assert "assembly.py:" not in ran.out and "engine.py:" not in ran.out
    assert "say what is expected: status, cause, culprits, group, location" in ran.out
