"""CI's own Docker daemon: it starts where none answers, and nothing of it stays.

Each runs in namespaces of its own, where the machine's daemon is out of sight.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from conditions import wait_for

pytestmark = [pytest.mark.docker, pytest.mark.root]

ROOT = Path(__file__).parents[2]
HIDE = "set -euo pipefail; mount -t tmpfs none /run; ip link set lo up; "
START = ". .ci/docker.sh; trap stop_docker EXIT; start_docker; echo pid $docker_pid; "


@pytest.fixture(autouse=True)
def local_daemon() -> None:
    if not os.path.exists("/usr/sbin/dockerd") and not os.path.exists("/usr/bin/dockerd"):
        pytest.skip("needs dockerd itself, which is elsewhere; apt-get install docker.io")


@contextmanager
def shell(script: str, data: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {k: v for k, v in os.environ.items() if k != "DOCKER_HOST"}
    process = subprocess.Popen(
        ["unshare", "--net", "--mount", "--propagation", "private", "bash", "-c", HIDE + script],
        cwd=ROOT,
        env={**environment, "HANGLAB_CI_DOCKER": str(data)},
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


def daemon_of(process: subprocess.Popen[str]) -> int:
    """Its process, once it answers."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if line.startswith("pid "):
            return int(line.split()[1])
    raise AssertionError("".join(said))


def rest_of(process: subprocess.Popen[str]) -> str:
    """All that it says until its end; what came with the last line is in the reader already."""
    assert process.stdout is not None
    said = process.stdout.read()
    process.wait()
    return said


def with_children(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def wait_for_end(processes: list[psutil.Process]) -> None:
    """Until they have ended, whoever is to collect them."""
    wait_for(lambda: all(map(_ended, processes)), f"the end of {processes}")


def _ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_it_stops_what_it_started_and_puts_rules_back(tmp_path: Path) -> None:
    script = (
        f"({START} iptables-save -t nat | grep -c DOCKER; read -r < {tmp_path}/go);"
        "echo after; iptables-save -t nat; ip -o link; ls /run/hanglab-ci"
    )
    os.mkfifo(tmp_path / "go")
    with shell(script, tmp_path / "data") as process:
        started = with_children(daemon_of(process))
        (tmp_path / "go").write_text("on\n")
        said = rest_of(process)
    running, after = said.split("after\n")
    assert int(running) > 0
    assert "DOCKER" not in after
    assert "docker0" not in after
    assert "No such file" in after
    assert len(started) > 1
    wait_for_end(started)


def test_rules_of_networks_that_a_killed_daemon_left_are_dropped_and_no_others(
    tmp_path: Path,
) -> None:
    rules = (
        "ip link add hl-0000000b type bridge;"
        "iptables -t nat -A POSTROUTING -s 10.9.0.0/20 ! -o hl-0000000a -j MASQUERADE;"
        "iptables -A FORWARD -i hl-0000000a -j ACCEPT;"
        "iptables -A FORWARD -i hl-0000000b -j ACCEPT;"
        "iptables -A FORWARD -i hl-strange -j ACCEPT;"
    )
    script = f"{rules} ({START}) > /dev/null; iptables-save"
    with shell(script, tmp_path / "data") as process:
        said = rest_of(process)
    assert process.returncode == 0, said
    assert "hl-0000000a" not in said
    assert "-i hl-0000000b -j ACCEPT" in said
    assert "-i hl-strange -j ACCEPT" in said


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_with_a_shell_that_is_ended(tmp_path: Path, end: signal.Signals) -> None:
    os.mkfifo(tmp_path / "never")
    with shell(START + f"read -r < {tmp_path}/never", tmp_path / "data") as process:
        started = with_children(daemon_of(process))
        process.send_signal(end)
        wait_for_end(started)


def test_a_daemon_that_cannot_start_is_told_and_is_no_failure(tmp_path: Path) -> None:
    blocked = tmp_path / "data"
    blocked.write_text("no folder")
    script = ". .ci/docker.sh; trap stop_docker EXIT; if start_docker; then exit 9; fi; echo on"
    with shell(script, blocked) as process:
        said = rest_of(process)
    assert process.returncode == 0
    assert "*** No containers: dockerd does not start" in said
    assert said.endswith("on\n")


@pytest.mark.slow
def test_an_image_that_does_not_fit_on_the_disk_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    script = (
        f"mount -t tmpfs -o size=48m none {tmp_path}/data; {START}"
        "mkdir /run/wheels; head -c 64M /dev/zero > /run/wheels/large-1-py3-none-any.whl;"
        "tar -cf - -T /dev/null | docker import - empty;"
        "WHEELS=/run/wheels BASE_IMAGE=empty IMAGE=never bash tools/image/build.sh"
    )
    with shell(script, tmp_path / "data") as process:
        said = rest_of(process)
    assert process.returncode == 1
    assert "make image: Docker's disk is full" in said
