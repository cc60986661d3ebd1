"""What keeps a machine from running containers is told in one sentence, with what to do."""

from __future__ import annotations

import io
import os
import secrets
import socket
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hanglab.harness import capabilities
from hanglab.harness.cli import main
from hanglab.harness.launchers.docker.connection import connect

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """What was found out before counts no longer, nor does afterwards what is found here."""
    capabilities.capability.cache_clear()
    yield
    capabilities.capability.cache_clear()


@pytest.fixture
def stranger() -> Iterator[str]:
    """Name of an image without hanglab."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("empty"))
    name = f"hanglab-test-{secrets.token_hex(4)}"
    client = connect()
    client.api.import_image_from_data(archive.getvalue(), repository=name)
    yield name
    client.images.remove(name)
    client.close()


def test_no_daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    found = capabilities.capability("docker")
    assert not found.available
    assert f"{tmp_path}/docker.sock" in found.reason
    assert "DOCKER_HOST" in found.remedy
    assert not capabilities.capability("image").available


def test_a_daemon_that_may_not_be_asked(tmp_path: Path) -> None:
    path = tmp_path / "docker.sock"
    tmp_path.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        path.chmod(0o600)
        if os.geteuid() != 0:
            path.chmod(0)
        found = _as_nobody(str(path))
    assert "may not talk to Docker" in found
    assert "group `docker`" in found


def _as_nobody(path: str) -> str:
    """What a process without rights finds, whatever this one may."""
    import docker  # noqa: F401 - nobody may not be able to read it

    os.environ["DOCKER_HOST"], before = f"unix://{path}", os.environ.get("DOCKER_HOST")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            found = capabilities.capability("docker")
            os.write(writing, f"{found.available} {found.reason} {found.remedy}".encode())
        except BaseException as failure:
            os.write(writing, repr(failure).encode())
        finally:
            os._exit(0)
    os.close(writing)
    if before is None:
        del os.environ["DOCKER_HOST"]
    else:
        os.environ["DOCKER_HOST"] = before
    with os.fdopen(reading) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.docker
def test_no_such_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANGLAB_IMAGE", "hanglab-test:none")
    found = capabilities.capability("image")
    assert not found.available
    assert "hanglab-test:none" in found.reason
    assert "make image" in found.remedy


@pytest.mark.docker
def test_an_image_without_hanglab(monkeypatch: pytest.MonkeyPatch, stranger: str) -> None:
    monkeypatch.setenv("HANGLAB_IMAGE", stranger)
    found = capabilities.capability("image")
    assert not found.available
    assert "holds no hanglab" in found.reason
    assert "make image" in found.remedy


def test_faults_that_need_docker_cannot_be_staged_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import json

    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    assert main(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    able = {fault["name"]: fault["available"] for fault in told["faults"]}
    assert able["Freeze"]
    for name in ("FreezeNode", "CutOff", "Delay", "LimitRate", "BlockDisk", "PortTaken"):
        assert not able[name]


def build(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(ROOT / "tools/image/build.sh")],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=280,
    )


def test_building_without_the_command(tmp_path: Path) -> None:
    (tmp_path / "bash").symlink_to("/bin/bash")
    (tmp_path / "dirname").symlink_to("/usr/bin/dirname")
    done = build(PATH=str(tmp_path))
    assert done.returncode == 1
    assert "no docker command" in done.stderr


@pytest.mark.docker
def test_building_without_a_daemon(tmp_path: Path) -> None:
    done = build(DOCKER_HOST=f"unix://{tmp_path}/docker.sock")
    assert done.returncode == 1
    assert "Docker does not answer" in done.stderr


@pytest.mark.docker
@pytest.mark.parametrize("setting", ["WHEELS", "CA_BUNDLE"])
def test_building_with_what_is_not_there(setting: str, tmp_path: Path) -> None:
    done = build(**{setting: str(tmp_path / "nothing"), "BASE_IMAGE": "any"})
    assert done.returncode == 1
    assert setting in done.stderr
