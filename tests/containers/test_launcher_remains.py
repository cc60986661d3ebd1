"""What is left of jobs in containers when hanglab was killed or interrupted: nothing in the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conditions import wait_for
from containers_support import SLEEPS, TELLS, all_exits, make_plan, pause, remains, running

from hanglab.harness.launchers import owners
from hanglab.harness.launchers.docker.launcher import DockerLauncher
from hanglab.harness.launchers.docker.reaping import reap

if TYPE_CHECKING:
    from docker import DockerClient

pytestmark = pytest.mark.docker


@contextmanager
def hanglab(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A ``hanglab`` of its own, in a folder of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "hanglab.harness.cli", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def running_ranks(engine: DockerClient, folder: Path) -> int:
    filters = {"label": owners.OWNER, "status": "running"}
    containers = engine.containers.list(filters=filters, ignore_removed=True)
    return sum(c.labels[owners.RUN].startswith(str(folder)) for c in containers)


def until_up(engine: DockerClient, folder: Path) -> None:
    """Waits until both ranks of the job below a folder say that they run."""

    def up() -> bool:
        outs = list(folder.glob("runs/2*/*/*/*/log/rank*.out"))
        return len(outs) == 2 and all(out.read_text() for out in outs)

    wait_for(up, "both ranks")
    assert running_ranks(engine, folder) == 2


def start(folder: Path) -> list[str]:
    folder.mkdir(exist_ok=True)
    script = folder / "sleeps.py"
    script.write_text(SLEEPS)
    return ["run", str(script), "--launcher", "docker", "--world-size", "2", "--hang-after", "100"]


@pytest.mark.slow
def test_a_killed_hanglab_is_cleaned_up_after(tmp_path: Path, engine: DockerClient) -> None:
    folder = tmp_path / "killed"
    other = DockerLauncher()
    with hanglab(tmp_path, *start(folder)) as process:
        until_up(engine, tmp_path)
        process.kill()
        process.wait()
        # Without it the nodes end by themselves; they and their network are still there.
        wait_for(lambda: not running_ranks(engine, tmp_path), "the end of the nodes")
        assert len(remains(engine, tmp_path)) == 3
    living = make_plan(tmp_path / "living", SLEEPS)
    try:
        with running(other, living) as job:
            # The next run did it before its first job.
            left = remains(engine, tmp_path)
            assert sorted(left) == sorted(
                [*(node.container.name for node in job.hosts.values()), job.hosts.network.name]
            )
            with hanglab(tmp_path, "clean") as cleaning:
                said, _ = cleaning.communicate(timeout=280)
            assert cleaning.returncode == 0
            assert "nothing is left" in said
            assert job.alive() and len(remains(engine, tmp_path)) == 3
    finally:
        other.close()
    assert not remains(engine, tmp_path)


@pytest.mark.long
def test_clean_removes_what_a_frozen_node_left(tmp_path: Path, engine: DockerClient) -> None:
    """A node that is frozen cannot see that hanglab has gone."""
    with hanglab(tmp_path, *start(tmp_path / "killed")) as process:
        until_up(engine, tmp_path)
        names = sorted(name for name in remains(engine, tmp_path) if "-node" in name)
        pause(engine.containers.get(names[1]))
        (network,) = engine.networks.list(names=[names[0].removesuffix("-node0")])
        shared = Path(network.attrs["Labels"][owners.SHARED])
        assert (shared / "node1.json").is_file()
        process.kill()
        process.wait()
        with hanglab(tmp_path, "clean") as cleaning:
            said, _ = cleaning.communicate(timeout=280)
    assert cleaning.returncode == 0
    assert [line for line in said.splitlines() if "container" in line] == [
        f"removed container {name}" for name in names
    ]
    assert "removed network hanglab-sleeps-" in said
    assert not shared.exists()
    assert not remains(engine, tmp_path)


@pytest.mark.slow
def test_an_interrupt_keeps_the_case_and_nothing_else(tmp_path: Path, engine: DockerClient) -> None:
    with hanglab(tmp_path, *start(tmp_path / "job")) as process:
        until_up(engine, tmp_path)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=280)
        assert process.returncode == 130, said
    assert not remains(engine, tmp_path)
    (case,) = tmp_path.glob("runs/2*/*/*/*/case")
    job = json.loads((case / "job.json").read_text())
    assert job["trigger"]["kind"] == "interrupt"
    assert job["ended_by_recorder"] is True
    manifest = json.loads((case / "manifest.json").read_text())
    paths = {entry["path"] for entry in manifest["files"]}
    for number in (0, 1):
        host = f"hosts/node{number}"
        assert {f"{host}/host.json", f"{host}/container.json"} <= paths
        exit_ = json.loads((case / host / f"ranks/{number}.0/exit.json").read_text())
        assert (exit_["signal"], exit_["by_recorder"]) == (signal.SIGKILL, True)
        assert f"{host}/ranks/{number}.0/stacks.jsonl" in paths


def test_only_the_dead_are_reaped(tmp_path: Path, engine: DockerClient) -> None:
    """Of owners that cannot be seen from here nothing is taken without being asked for."""
    mine = owners.labels_of("abcd0123", tmp_path, "none")
    assert owners.is_dead(mine) is False
    machine, boot, namespace, pid, started = mine[owners.OWNER].split(":")
    strangers = {
        "ended": (":".join([machine, boot, namespace, pid, str(int(started) - 1)]), True),
        "no number": (":".join([machine, boot, namespace, "x", started]), None),
        "elsewhere": (":".join(["other", "boot", namespace, pid, started]), None),
        "container": (":".join([machine, boot, "1", pid, started]), None),
        "rebooted": (":".join([machine, "boot", namespace, pid, started]), bool(machine) or None),
    }
    for word, (owner, dead) in strangers.items():
        assert owners.is_dead({owners.OWNER: owner}) is dead, word
    made = {
        word: engine.networks.create(
            f"hanglab-test-{os.getpid()}-{word.replace(' ', '-')}",
            labels={**mine, owners.OWNER: owner},
        )
        for word, (owner, _) in strangers.items()
        if word in ("ended", "elsewhere")
    }
    try:
        assert made["ended"].name in reap(engine).networks
        assert [network.id for network in engine.networks.list(ids=[made["elsewhere"].id])]
    finally:
        made["elsewhere"].remove()


@pytest.mark.slow
def test_the_job_after_an_error_is_as_good_as_any(
    tmp_path: Path, launcher: DockerLauncher, engine: DockerClient
) -> None:
    with running(launcher, make_plan(tmp_path / "bad", "raise SystemExit(3)")) as job:
        assert {end.code for end in all_exits(job).values()} == {3}
    with running(launcher, make_plan(tmp_path / "good", TELLS)) as job:
        assert {end.code for end in all_exits(job).values()} == {0}
    assert not remains(engine, tmp_path)
