"""What the tests of jobs in containers share: plans, jobs, and looking for remains."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conditions import PATIENCE_S, wait_for

from hanglab.harness.launchers.docker.launcher import DockerLauncher
from hanglab.harness.launchers.protocol import JobPlan, RankExit

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

    from hanglab.harness.launchers.docker.job import ContainerJob

#: Writes what the rank sees of itself; needs no torch, so that it starts at once.
TELLS = """\
import json, os, resource, socket, sys
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
         "MASTER_ADDR", "MASTER_PORT", "HANGLAB_FAULT", "GLOO_SOCKET_IFNAME")
shm = os.statvfs("/dev/shm")
print(json.dumps({
    **{name: os.environ.get(name) for name in names},
    "host": socket.gethostname(),
    "address": socket.gethostbyname(socket.gethostname()),
    "uid": os.getuid(),
    "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    "shm": shm.f_blocks * shm.f_frsize,
    "arguments": sys.argv[1:],
    "scratch": os.path.ismount("/scratch"),
    "skew": os.environ.get("SKEW"),
}), flush=True)
"""
#: Sleeps until it is ended.
SLEEPS = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"


def make_plan(run_dir: Path, program: str, *arguments: object, **changes: Any) -> JobPlan:
    """A plan for the text of a program."""
    run_dir.mkdir(parents=True, exist_ok=True)
    script = run_dir / "program.py"
    script.write_text(program)
    values: dict[str, Any] = {
        "run_dir": run_dir,
        "case_dir": run_dir / "case",
        "script": script,
        "function": None,
        "world_size": 2,
        "faulty": True,
        "seed": 0,
        "backend": "gloo",
        "deadline_s": PATIENCE_S,
        "arguments": tuple(map(str, arguments)),
    }
    return JobPlan(**{**values, **changes})


@contextmanager
def running(launcher: DockerLauncher, plan: JobPlan) -> Iterator[ContainerJob]:
    job = launcher.start(plan)
    try:
        yield job
    finally:
        job.end()


def all_exits(job: ContainerJob, seconds: float = PATIENCE_S) -> dict[int, RankExit]:
    """Waits until every rank has ended."""
    exits: dict[int, RankExit] = {}
    until = time.monotonic() + seconds
    while job.alive() and time.monotonic() < until:
        exits.update({exit.rank: exit for exit in job.events(1.0)})
    assert not job.alive(), f"still alive after {seconds} s, ended: {exits}"
    return exits


def told(plan: JobPlan, rank: int) -> dict[str, Any]:
    """What a rank that TELLS has written."""
    result: dict[str, Any] = json.loads((plan.log_dir / f"rank{rank}.out").read_text())
    return result


def pause(container: Container) -> None:
    """Docker's freezer gives up on processes that are being started; on a busy machine often."""
    import docker.errors

    def paused() -> bool:
        with suppress(docker.errors.APIError):
            container.pause()
        container.reload()
        return bool(container.status == "paused")

    wait_for(paused, "the container to be frozen")


def remains(client: DockerClient, run_dir: Path) -> list[str]:
    """Names of containers and networks of the jobs below a folder."""

    def here(labels: dict[str, str]) -> bool:
        return labels.get("hanglab.run", "").startswith(str(run_dir))

    mine = {"label": "hanglab.owner"}
    containers = client.containers.list(all=True, filters=mine, ignore_removed=True)
    networks = client.networks.list(filters=mine)
    return [c.name for c in containers if here(c.labels)] + [
        n.name for n in networks if here(n.attrs["Labels"])
    ]
