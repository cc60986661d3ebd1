"""The image that `make image` builds: what it holds, what it leaves out, and that it works."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from conditions import wait_for

from hanglab.harness.launchers.docker.connection import connect
from hanglab.harness.launchers.docker.image import LABEL, PYTHON, USER, image_name

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.images import Image

pytestmark = pytest.mark.docker

ROOT = Path(__file__).parents[2]
#: Prints py-spy's exit code for a process that runs Python for certain.
_PY_SPY = """
import subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-c", "print(flush=True); input()"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE,
)
child.stdout.readline()
done = subprocess.run(["py-spy", "dump", "--pid", str(child.pid)], capture_output=True)
print(done.returncode)
child.kill()
"""


@pytest.fixture(scope="module")
def client() -> Iterator[DockerClient]:
    made = connect()
    yield made
    made.close()


@pytest.fixture(scope="module")
def image(client: DockerClient) -> Image:
    return client.images.get(image_name())


def run(client: DockerClient, *command: str, entrypoint: str = "", **options: Any) -> str:
    """Output of a container that ends by itself."""
    if entrypoint:
        options["entrypoint"] = [entrypoint]
    container = client.containers.create(
        image_name(), list(command), labels={"hanglab.test": "image"}, **options
    )
    try:
        container.start()
        code = container.wait(timeout=200)["StatusCode"]
        said = container.logs().decode()
        assert code == 0, said
        return said
    finally:
        container.remove(force=True, v=True)


def test_it_says_what_it_is(image: Image) -> None:
    config = image.attrs["Config"]
    assert config["User"] == "hanglab"
    assert config["Entrypoint"] == ["hanglab"]
    assert config["WorkingDir"] == "/home/hanglab"
    assert config["Healthcheck"]["Test"] == ["CMD", "hanglab", "--version"]
    assert image.labels[LABEL] == version("hanglab")
    assert f"ARG VERSION={version('hanglab')}\n" in (ROOT / "Dockerfile").read_text()


def test_it_runs_as_nobody_special(client: DockerClient) -> None:
    script = "id -u; id -g; pwd; touch here; touch /opt/hanglab/there 2>&1 || true"
    uid, gid, here, refusal = run(client, "-c", script, entrypoint="sh").splitlines()
    assert (int(uid), int(gid)) == USER
    assert here == "/home/hanglab"
    assert "Permission denied" in refusal


def test_the_main_job_is_done_inside(client: DockerClient) -> None:
    said = run(client, "run", "skipped_collective", "--json", network_mode="none")
    results = json.loads(said[said.index("{") :])["results"]
    assert [result["outcome"] for result in results] == ["pass", "pass"]
    assert results[0]["verdict"]["location"]["function"] == "skipped_collective"


def test_only_pinned_versions_are_in_it(client: DockerClient) -> None:
    listing = (
        "from importlib.metadata import distributions\n"
        "for one in distributions(): print(one.name, one.version)"
    )
    found = dict(
        line.split() for line in run(client, "-c", listing, entrypoint=PYTHON).splitlines()
    )
    assert {"torch", "numpy", "py-spy", "hanglab"} <= found.keys()
    assert "pip" not in found
    pinned: dict[str, set[str]] = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if "==" in line and not line.startswith("#"):
            name, _, held = line.partition(";")[0].strip().partition("==")
            pinned.setdefault(_plain(name), set()).add(held)
    del found["hanglab"]
    for name, held in found.items():
        assert held.partition("+")[0] in pinned[_plain(name)], name


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_nothing_of_the_building_machine_is_in_it(client: DockerClient, image: Image) -> None:
    assert not [line for line in image.attrs["Config"]["Env"] if re.match("PIP|SSL|HTTP", line)]
    left = "ls -d /image /source /tools /wheel /requirements.txt 2>/dev/null; ls /tmp"
    assert run(client, "-c", left + "; true", entrypoint="sh") == ""


def test_nodes_find_what_faults_need(client: DockerClient) -> None:
    wanted = (
        "ip -V; ls /usr/lib/*/faketime/libfaketime.so.1; test -w /home/hanglab -a -x /bin/mount"
    )
    said = run(client, "-c", wanted, entrypoint="sh")
    assert "iproute2" in said
    assert "libfaketime.so.1" in said


def test_doctor_knows_whether_stacks_can_be_read_inside(client: DockerClient) -> None:
    told = json.loads(run(client, "doctor", "--json"))["capabilities"]
    said = {one["name"]: one["available"] for one in told}
    came = run(client, "-c", _PY_SPY, entrypoint="python")
    assert int(came) == (0 if said["ptrace"] else 1)
    assert said["gloo"] and not said["docker"]


def test_layers_stay_small(image: Image) -> None:
    # The newest first; the base comes last.
    sizes = [layer["Size"] for layer in image.history() if layer["Size"]]
    project, dependencies = sizes[:2]
    assert project < 20 << 20
    assert dependencies > 10 * project


def test_it_tells_its_health(client: DockerClient) -> None:
    container = client.containers.run(
        image_name(),
        ["120"],
        entrypoint=["sleep"],
        detach=True,
        labels={"hanglab.test": "image"},
        healthcheck={"interval": 1_000_000_000},
    )
    try:

        def healthy() -> bool:
            container.reload()
            return bool(container.attrs["State"]["Health"]["Status"] == "healthy")

        wait_for(healthy, "a healthy container")
    finally:
        container.remove(force=True, v=True)
