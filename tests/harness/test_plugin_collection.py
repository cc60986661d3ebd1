"""Which items pytest gets, and what it says where it cannot have them."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
from plugin_support import NEEDS, SOUND, environment, run_pytest, write

from hanglab.harness.scenarios import discovery

#: Stands in for NVML: a machine with eight GPUs, which nobody here has.
EIGHT_GPUS = """
from hanglab.harness.leases import gpus
from hanglab.harness.leases.machine import Gpu, GpuInventory
made_up = GpuInventory(tuple(Gpu(i, f"GPU-{i}", "made up") for i in range(8)))
gpus.read_machine = lambda: made_up
"""


def items_of_project() -> int:
    """A fault and a control of each scenario, and a healthy one alone."""
    return sum(1 if one.is_healthy else 2 for one in discovery.read_project().scenarios)


def collect(folder: Path, *arguments: object, **changes: str) -> list[str]:
    ran = run_pytest(folder, "--collect-only", "-q", *arguments, changes=changes)
    assert ran.code == 0, ran.out
    return ran.items()


@pytest.mark.slow
def test_it_sleeps_until_asked(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text("def test_own(): pass\n")
    (tmp_path / "hanglab_helpers.py").write_text("'''Nothing but helpers of hanglab's user.'''\n")
    code = (
        "import sys, pytest; code = pytest.main(['-q', '-p', 'no:cacheprovider'])\n"
        "print(sorted(m for m in sys.modules if m.startswith(('hanglab.', 'torch'))))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    lines = ran.stdout.splitlines()
    assert "['hanglab.harness', 'hanglab.harness.pytest_plugin']" in lines
    assert "1 passed" in ran.stdout
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_users_file_is_collected_once_wherever_it_lies(tmp_path: Path) -> None:
    write(tmp_path, "deep/down/hanglab_mine.py", SOUND.format(name="mine"))
    write(tmp_path, "hanglab_helpers.py", "def scenario_of_nothing(): ...")
    wanted = [
        "deep/down/hanglab_mine.py::mine[fault-gloo-local-2]",
        "deep/down/hanglab_mine.py::mine[control-gloo-local-2]",
    ]
    assert collect(tmp_path) == wanted
    assert collect(tmp_path, "deep/down/hanglab_mine.py") == wanted
    assert collect(tmp_path, "-o", "python_files=hanglab_*.py") == wanted
    assert collect(tmp_path, wanted[0]) == wanted[:1]


@pytest.mark.slow
def test_the_projects_scenarios_are_collected_without_torch(tmp_path: Path) -> None:
    code = (
        "import sys, pytest\n"
        "pytest.main(['--hanglab', '--collect-only', '-q', '-p', 'no:cacheprovider'])\n"
        "print('torch' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    names = {scenario.name for scenario in discovery.read_project().scenarios}
    items = [line for line in ran.stdout.splitlines() if "::" in line]
    assert len(items) == items_of_project()
    assert {item.split("::")[1].split("[")[0] for item in items} == names
    assert ran.stdout.splitlines()[-1] == "False"


def test_one_of_the_projects_scenarios_is_asked_for_by_path(tmp_path: Path) -> None:
    path = discovery.project_folder() / "synchronization" / "skipped_collective.py"
    items = collect(tmp_path, "--hanglab", path)
    assert [item.rsplit("::")[-1] for item in items] == [
        "skipped_collective[fault-gloo-local-4]",
        "skipped_collective[control-gloo-local-4]",
    ]


def test_a_path_gives_the_scenarios_below_it_alone(tmp_path: Path) -> None:
    write(tmp_path, "ours/deep/any_name.py", SOUND.format(name="mine"))
    write(tmp_path, "ours/test_both.py", SOUND.format(name="beside"), "def test_own(): pass")
    write(tmp_path, "theirs/hanglab_theirs.py", SOUND.format(name="theirs"))
    wanted = [
        "ours/deep/any_name.py::mine[fault-gloo-local-2]",
        "ours/deep/any_name.py::mine[control-gloo-local-2]",
    ]
    assert collect(tmp_path, "--hanglab", "ours/deep") == wanted
    assert collect(tmp_path, "--hanglab", "ours/deep/any_name.py") == wanted
    assert collect(tmp_path, "--hanglab", "ours", "-n", "2") == [
        *wanted,
        "ours/test_both.py::test_own",
    ]


@pytest.mark.slow
def test_the_projects_scenarios_come_beside_a_path_when_asked_for(tmp_path: Path) -> None:
    write(tmp_path, "ours/any_name.py", SOUND.format(name="mine"))
    count = items_of_project()
    assert len(collect(tmp_path, "--hanglab", "--hanglab-builtin", "ours")) == 2 + count
    assert len(collect(tmp_path, "--hanglab-builtin", "ours", "-n", "1")) == count
    assert len(collect(tmp_path, "--hanglab", "-n", "1")) == count


def test_items_are_parametrised_and_repeated(tmp_path: Path) -> None:
    write(tmp_path, "hanglab_mine.py", SOUND.format(name="mine"))
    options = ["--hanglab-backend=gloo,nccl", "--hanglab-launcher=torchrun"]
    options += ["--hanglab-world-size=2,3", "--hanglab-repeat=2"]
    items = collect(tmp_path, *options)
    assert len(items) == len(set(items)) == 2 * 2 * 2 * 2
    assert "hanglab_mine.py::mine[control-nccl-torchrun-3-seed1]" in items


@pytest.mark.slow
def test_shards_share_the_scenarios_out(tmp_path: Path) -> None:
    for letter in "abcde":
        write(tmp_path, f"hanglab_{letter}.py", SOUND.format(name=letter))
    (tmp_path / "test_own.py").write_text("def test_own(): pass\n")
    whole = collect(tmp_path)
    shards = [collect(tmp_path, f"--hanglab-shard={number}/3") for number in (1, 2, 3)]
    scenarios = [[item for item in shard if "hanglab_" in item] for shard in shards]
    assert sorted(chain.from_iterable(scenarios)) == sorted(
        item for item in whole if "hanglab_" in item
    )
    assert [len(shard) for shard in scenarios] == [4, 4, 2]
    for shard in scenarios:
        faults = {item.split("[")[0] for item in shard if "fault" in item}
        assert faults == {item.split("[")[0] for item in shard if "control" in item}
    assert all("test_own.py::test_own" in shard for shard in shards)


@pytest.mark.slow
def test_markers_choose(tmp_path: Path) -> None:
    write(
        tmp_path,
        "hanglab_mine.py",
        SOUND.format(name="plain"),
        NEEDS.format(name="contained", given='needs=("docker", "root")'),
        NEEDS.format(name="patient", given="hang_after=8.0"),
        NEEDS.format(name="wide", given="gpus=2"),
    )

    def chosen(marker: str, *arguments: str) -> set[str]:
        items = collect(tmp_path, "-m", marker, *arguments)
        return {item.split("::")[1].split("[")[0] for item in items}

    assert chosen("docker") == chosen("root") == {"contained"}
    assert chosen("slow") == {"contained", "patient"}
    assert chosen("cpu") == {"plain", "contained", "patient", "wide"}
    nccl = "--hanglab-backend=nccl"
    assert chosen("multi_gpu", nccl) == {"wide"}
    assert chosen("one_gpu", nccl) == {"plain", "contained", "patient"}
    assert chosen("slow", "--hanglab-launcher=torchrun") == chosen("cpu")


def test_what_is_missing_is_a_skip_with_reason_and_remedy(tmp_path: Path) -> None:
    write(
        tmp_path,
        "hanglab_mine.py",
        NEEDS.format(name="contained", given='needs=("docker",)'),
        NEEDS.format(name="elsewhere", given='backends=("nccl",)'),
    )
    (tmp_path / "test_own.py").write_text(
        "import pytest\n"
        "@pytest.mark.multi_gpu(99)\n"
        "def test_wide(): raise AssertionError\n"
        "@pytest.mark.docker\n"
        "def test_contained(): raise AssertionError\n"
    )
    ran = run_pytest(tmp_path, "-rs", changes={"DOCKER_HOST": "unix:///nowhere/docker.sock"})
    assert ran.code == 0, ran.out
    assert "6 skipped" in ran.out
    assert "needs docker: " in ran.out
    assert "no Docker daemon answers at unix:///nowhere/docker.sock (No such file" in ran.out
    assert "; Start it (" in ran.out
    assert "runs on nccl only" in ran.out
    assert "needs 99 GPUs, there are" in ran.out


def test_containers_that_cannot_be_had_are_a_skip(tmp_path: Path) -> None:
    write(tmp_path, "hanglab_mine.py", SOUND.format(name="mine"))
    options = ["--hanglab-launcher=docker", "-m", "docker", "-rs"]
    ran = run_pytest(tmp_path, *options, changes={"DOCKER_HOST": "unix:///nowhere/docker.sock"})
    assert ran.code == 0, ran.out
    assert "2 skipped" in ran.out
    assert "needs docker: " in ran.out
    assert "no Docker daemon answers at unix:///nowhere/docker.sock (No such file" in ran.out
    assert "; Start it (" in ran.out
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_more_gpus_than_exist_and_more_than_the_pool_has(tmp_path: Path) -> None:
    write(tmp_path, "hanglab_mine.py", NEEDS.format(name="wide", given="gpus=4"))
    (tmp_path / "conftest.py").write_text(EIGHT_GPUS)
    nccl = "--hanglab-backend=nccl"
    assert len(collect(tmp_path, nccl)) == 2
    assert len(collect(tmp_path, nccl, CUDA_VISIBLE_DEVICES="7,6,5,4")) == 2
    ran = run_pytest(tmp_path, nccl, changes={"CUDA_VISIBLE_DEVICES": "0,5"})
    assert ran.code == 2
    assert "wide asks for 4 GPUs, but the pool has 2 GPUs (CUDA_VISIBLE_DEVICES=0,5)" in ran.out
    write(tmp_path, "hanglab_mine.py", NEEDS.format(name="wide", given="gpus=9"))
    ran = run_pytest(tmp_path, nccl, "-rs")
    assert ran.code == 0
    assert "2 skipped" in ran.out


def test_two_scenarios_of_one_name_are_an_error(tmp_path: Path) -> None:
    one = write(tmp_path, "hanglab_a.py", SOUND.format(name="twin"))
    two = write(tmp_path, "hanglab_b.py", SOUND.format(name="twin"))
    ran = run_pytest(tmp_path)
    assert ran.code == 2
    assert f"Two scenarios are called twin: {one}:7 and {two}:7.  Rename one." in ran.out
    assert "Traceback" not in ran.out


def test_a_declaration_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, "hanglab_a.py", NEEDS.format(name="odd", given='needs=("teleport",)'))
    ran = run_pytest(tmp_path)
    assert ran.code == 2
    assert f"{path}:7: there is no capability 'teleport'" in ran.out


@pytest.mark.parametrize(
    "option, said",
    [
        ("--hanglab-shard=3/2", "Say I/N, with I from 1 to N, such as 2/3"),
        ("--hanglab-backend=mpi", "not one of gloo, nccl"),
        ("--hanglab-launcher=ssh", "there are local, torchrun"),
        ("--hanglab-repeat=0", "a number from 1 on is needed"),
        ("--hanglab-world-size=100000000", "at most 4096 can be had"),
        ("--hanglab-artifacts=/proc/nowhere", "cannot be written"),
    ],
)
def test_an_option_that_makes_no_sense_is_told_at_once(
    tmp_path: Path, option: str, said: str
) -> None:
    write(tmp_path, "hanglab_a.py", SOUND.format(name="mine"))
    ran = run_pytest(tmp_path, option)
    assert ran.code == 4
    assert said in ran.out
    assert "Traceback" not in ran.out


def test_artifacts_that_cannot_be_written_are_told(tmp_path: Path) -> None:
    """Also where nobody chose the folder, so that it is found out when the first job begins."""
    write(tmp_path, "hanglab_a.py", SOUND.format(name="mine"))
    (tmp_path / "runs").write_text("in the way")
    ran = run_pytest(tmp_path, "-k", "fault")
    assert ran.code == 1
    assert re.search(r"^harness error: .*/runs/\S+ cannot be created", ran.out, re.MULTILINE)
    assert "Write into a folder that you may write to, with space left on its disk." in ran.out
    assert "1 job: 1 harness error" in ran.out
    assert "Traceback" not in ran.out
    ran = run_pytest(tmp_path, "-k", "fault", "-n", "1", "--hanglab-artifacts=runs")
    assert ran.code == 4
    assert f"--hanglab-artifacts={tmp_path / 'runs'}: cannot be written: File exists" in ran.out
    assert "Traceback" not in ran.out


def test_a_users_conftest_that_breaks_is_told(tmp_path: Path) -> None:
    write(tmp_path, "hanglab_a.py", SOUND.format(name="mine"))
    (tmp_path / "conftest.py").write_text("import no_such_package\n")
    ran = run_pytest(tmp_path, "--hanglab")
    assert ran.code == 4
    assert "No module named 'no_such_package'" in ran.out
    assert not (tmp_path / "runs").exists()
