"""Docker that is not there, refuses, is full or goes away: one sentence, the remedy, no remains."""

from __future__ import annotations

import io
import json
import os
import re
import secrets
import select
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from conditions import wait_for
from containers_support import SLEEPS, TELLS, all_exits, make_plan, remains, running

from hanglab.harness.launchers.docker import containers, errors
from hanglab.harness.launchers.docker.connection import connect
from hanglab.harness.launchers.docker.image import LABEL, PYTHON, VARIABLE, image_name
from hanglab.harness.launchers.docker.launcher import DockerLauncher
from hanglab.harness.launchers.docker.reaping import reap
from hanglab.harness.launchers.docker.user_programs import UnreadableProgram
from hanglab.harness.launchers.protocol import LaunchError

if TYPE_CHECKING:
    from docker import DockerClient

needs_docker = pytest.mark.docker


def refusal(plan_dir: Path) -> LaunchError:
    """What a new launcher says when it is to start a job."""
    launcher = DockerLauncher()
    try:
        with pytest.raises(LaunchError) as raised:
            launcher.start(make_plan(plan_dir, TELLS)).end()
    finally:
        launcher.close()
    sentence = str(raised.value)
    assert sentence.endswith(".") and "\n" not in sentence and raised.value.advice
    return raised.value


def test_no_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    error = refusal(tmp_path)
    assert isinstance(error, errors.NoDaemon)
    assert f"no Docker daemon answers at unix://{tmp_path}/none.sock" in str(error)
    assert "DOCKER_HOST" in error.advice


def test_a_daemon_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    error = refusal(tmp_path)
    assert isinstance(error, errors.NotHere)
    assert "is not on this machine" in str(error)


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of a user whom the socket refuses."""
    import docker  # noqa: F401  (before another user may have to find it)

    if os.geteuid() != 0:
        pytest.skip("needs root, to become somebody else")
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        Path(folder).chmod(0o755)
        path = f"{folder}/docker.sock"
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            try:
                connect()
            except LaunchError as error:
                said = f"{type(error).__name__} | {error} | {error.advice}"
            except BaseException as error:
                said = repr(error)
            else:
                said = "it may"
            os.write(writing, said.encode())
            os._exit(0)
        os.close(writing)
        with open(reading) as file:
            said = file.read()
        os.waitpid(pid, 0)
    kind, sentence, advice = said.split(" | ")
    assert kind == "NotAllowed"
    assert sentence == f"This user may not talk to Docker at unix://{path}."
    assert "group `docker`" in advice


@needs_docker
def test_no_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: DockerClient) -> None:
    monkeypatch.setenv(VARIABLE, "hanglab-not-there:1")
    error = refusal(tmp_path)
    assert isinstance(error, errors.NoImage)
    assert str(error) == "There is no image hanglab-not-there:1."
    assert "make image" in error.advice and VARIABLE in error.advice
    assert not remains(engine, tmp_path)


@contextmanager
def image(engine: DockerClient, name: str, dockerfile: str, **files: str) -> Iterator[str]:
    """An image made for one test."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, text in {"Dockerfile": dockerfile, **files}.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(text), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    packed.seek(0)
    engine.images.build(fileobj=packed, custom_context=True, tag=name, rm=True, forcerm=True)
    try:
        yield name
    finally:
        engine.images.remove(name, force=True)


@needs_docker
@pytest.mark.parametrize(
    ("label", "said"),
    [("other=1", "holds no hanglab"), (f"{LABEL}=0.0.0", "holds hanglab 0.0.0, and this is")],
)
def test_an_image_without_this_hanglab(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: DockerClient,
    label: str,
    said: str,
) -> None:
    name = f"hanglab-test-{os.getpid()}:unfit"
    with image(engine, name, f"FROM scratch\nLABEL {label}\nCOPY nothing /\n", nothing="x"):
        monkeypatch.setenv(VARIABLE, name)
        error = refusal(tmp_path)
    assert isinstance(error, errors.UnfitImage)
    assert said in str(error)
    assert not remains(engine, tmp_path)


@needs_docker
@pytest.mark.parametrize(
    ("program", "patience_s", "said"),
    [
        ("#!/bin/sh\nexec sleep 300\n", 2.0, "Node 0 was not ready in 2 s"),
        ("#!/bin/sh\necho out of order\nexit 3\n", 60.0, "ended early: out of order"),
    ],
)
def test_a_container_that_never_becomes_ready(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: DockerClient,
    program: str,
    patience_s: float,
    said: str,
) -> None:
    from hanglab.harness.launchers.docker import job

    monkeypatch.setattr(job, "_READY_S", patience_s)
    name = f"hanglab-test-{os.getpid()}:stuck"
    recipe = f"FROM {image_name()}\nCOPY python {PYTHON}\n"
    with image(engine, name, recipe, python=program):
        monkeypatch.setenv(VARIABLE, name)
        launcher = DockerLauncher()
        try:
            with pytest.raises(errors.NodeNotReady) as raised:
                launcher.start(make_plan(tmp_path, TELLS))
        finally:
            launcher.close()
    assert said in str(raised.value)
    assert not remains(engine, tmp_path)


@pytest.mark.long
@needs_docker
def test_a_name_that_is_taken(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: DockerClient,
    launcher: DockerLauncher,
) -> None:
    # Another run of the tests may have the same engine, and other threads draw tokens, too.
    first, other = secrets.token_hex(4), secrets.token_hex(4)
    tokens = [first, first, other]
    drawn = SimpleNamespace(token_hex=lambda size: tokens.pop(0))
    monkeypatch.setattr(containers, "secrets", drawn)
    monkeypatch.setattr(
        "hanglab.harness.launchers.docker.launcher.new_runtime_dir",
        lambda: tmp_path / f"shared-{len(tokens)}",
    )
    taken = engine.containers.create(image_name(), name=f"hanglab-program-{first}-node1")
    try:
        with running(launcher, make_plan(tmp_path, TELLS)) as job:
            assert job.hosts.network.name == f"hanglab-program-{other}"
            all_exits(job)
        tokens[:] = [first] * 3
        with pytest.raises(errors.ContainerNameTaken, match="already in use") as raised:
            launcher.start(make_plan(tmp_path, TELLS))
        assert "hanglab clean" in raised.value.advice
    finally:
        taken.remove(force=True)
    assert not remains(engine, tmp_path)


@needs_docker
@pytest.mark.parametrize("by", ["hanglab", "a node"])
def test_no_space_for_the_logs(
    tmp_path: Path, engine: DockerClient, launcher: DockerLauncher, by: str
) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=8", "none", disk], check=True)
    try:
        plan = make_plan(disk, TELLS)
        if by == "a node":
            plan.case_dir.mkdir()
            plan.log_dir.mkdir()
        with suppress(OSError):
            for number in range(8):
                (disk / f"full{number}").write_bytes(bytes(1 << 14))
        with pytest.raises(errors.NoSpace, match=r"[Nn]o space left on device") as raised:
            launcher.start(plan)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
    assert "\n" not in str(raised.value) and raised.value.advice
    assert not remains(engine, tmp_path)


def test_docker_without_space_is_told_apart() -> None:
    """As Docker 20.10 and 28 word it."""
    import docker.errors

    said = "mkdir /var/lib/docker/overlay2/abc-init/merged: no space left on device"
    with pytest.raises(errors.NoSpace, match="Starting node 0 failed") as raised:
        with errors.explained("Starting node 0"):
            raise docker.errors.APIError("500 Server Error", None, explanation=said)
    assert "docker system prune" in raised.value.advice


@needs_docker
def test_a_program_that_ranks_may_not_read(tmp_path: Path, launcher: DockerLauncher) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, whose files others may not read")
    plan = make_plan(tmp_path, TELLS)
    plan.script.chmod(0o600)
    with pytest.raises(UnreadableProgram, match="cannot be read by user 1000") as raised:
        launcher.start(plan)
    assert "chmod o+r" in raised.value.advice


class Proxy:
    """A socket in front of the daemon's: the daemon as it looks from here comes and goes."""

    def __init__(self, path: Path, daemon: str) -> None:
        self.path = path
        self._daemon = daemon
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._ends: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._daemon)
                self._ends += [near, far]
                threading.Thread(target=self._pump, args=(near, far), daemon=True).start()

    @staticmethod
    def _pump(near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError, ValueError):
            while True:
                ready, _, _ = select.select([near, far], [], [])
                for end in ready:
                    data = end.recv(1 << 16)
                    if not data:
                        return
                    (far if end is near else near).sendall(data)

    def go_away(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.path.unlink(missing_ok=True)
        self._thread.join()
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


#: One scenario in containers, whose ranks say when they are there, and one without.
_SUITE = """\
import threading
from hanglab.harness import Cause, Expect, scenario

@scenario(
    world_size=2, expect=Expect(Cause.PARTITION, culprits={0}, location=None), needs=("docker",)
)
def in_containers(job):
    print("up", flush=True)
    threading.Event().wait()

@scenario(world_size=1, expect=Expect(Cause.EXCEPTION, culprits={0}))
def on_the_host(job):
    if job.faulty:
        raise ValueError("as it should")  # FAULT
"""


@pytest.mark.slow
@needs_docker
def test_a_suite_goes_on_when_the_daemon_has_gone_away(
    tmp_path: Path, engine: DockerClient
) -> None:
    proxy = Proxy(tmp_path / "docker.sock", errors.address().removeprefix("unix://"))
    (tmp_path / "hanglab_suite.py").write_text(_SUITE)
    command = [sys.executable, "-m", "hanglab.harness.cli", "run", "hanglab_suite.py"]
    command += ["--no-control", "--json", "--hang-after", "100"]
    try:
        with subprocess.Popen(
            command,
            cwd=tmp_path,
            env={**os.environ, "DOCKER_HOST": f"unix://{proxy.path}"},
            stdout=subprocess.PIPE,
            text=True,
        ) as running_suite:
            try:
                outs = "runs/2*/in_containers/*/*/log/rank*.out"
                wait_for(
                    lambda: [out.read_text() for out in tmp_path.glob(outs)] == ["up\n"] * 2,
                    "both ranks",
                )
                proxy.go_away()
                nodes = [name for name in remains(engine, tmp_path) if "-node" in name]
                engine.containers.get(nodes[0]).kill()  # or nobody would ask for the daemon
                said, _ = running_suite.communicate(timeout=280)
            finally:
                running_suite.kill()
        assert running_suite.returncode == 4
        results = {one["scenario"]: one for one in json.loads(said)["results"]}
        assert results["on_the_host"]["outcome"] == "pass"
        assert results["in_containers"]["outcome"] == "harness error"
        assert "went away while the job ran" in results["in_containers"]["reason"]
    finally:
        client = connect()
        reap(client)
        client.close()
    assert not remains(engine, tmp_path)


@needs_docker
@pytest.mark.parametrize("node_ends", [False, True])
def test_a_daemon_that_goes_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: DockerClient, node_ends: bool
) -> None:
    proxy = Proxy(tmp_path / "docker.sock", errors.address().removeprefix("unix://"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{proxy.path}")
    launcher = DockerLauncher()
    try:
        job = launcher.start(make_plan(tmp_path, SLEEPS))
        shared = job.runtime_dir
        proxy.go_away()
        if node_ends:
            engine.containers.get(job.hosts[1].container.id).kill()
            with pytest.raises(errors.DaemonLost, match="went away while the job ran"):
                job.events(280)
        with pytest.raises(errors.DaemonLost, match="went away while the job ran") as raised:
            job.end()
        assert "hanglab clean" in raised.value.advice
        assert not shared.exists()
    finally:
        launcher.close()
    nodes = [name for name in remains(engine, tmp_path) if re.search("-node[0-9]$", name)]
    # Nobody has ended them but themselves.
    wait_for(
        lambda: {engine.containers.get(name).status for name in nodes} == {"exited"},
        "the end of the nodes",
    )
    monkeypatch.delenv("DOCKER_HOST")
    from hanglab.harness.launchers.docker.network import remove_network
    from hanglab.harness.launchers.docker.reaping import remove_containers

    remove_containers([engine.containers.get(name) for name in nodes])
    for network in engine.networks.list(filters={"label": f"hanglab.run={tmp_path}"}):
        remove_network(network)
    assert not remains(engine, tmp_path)
