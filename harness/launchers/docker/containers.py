"""Making the containers of a job, all at once."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanglab.harness.faults.host_fault import strikes_in
from hanglab.harness.hosts import HostSettings
from hanglab.harness.launchers import owners, protocol
from hanglab.harness.launchers.docker import container_paths, image
from hanglab.harness.launchers.docker.environment import node_environment
from hanglab.harness.launchers.docker.errors import explained
from hanglab.harness.launchers.docker.user_programs import shared_path, source_folders
from hanglab.harness.launchers.nodes.placement import devices_of
from hanglab.harness.launchers.protocol import JobPlan

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container
    from docker.types import Mount


@dataclass(frozen=True)
class Label:
    """Name of a job and of everything that belongs to it."""

    #: Eight characters that no other job has.
    job: str
    #: What names begin with.
    prefix: str
    labels: Mapping[str, str]

    def of_node(self, number: int) -> str:
        return f"{self.prefix}-node{number}"


def new_label(plan: JobPlan) -> Label:
    job = secrets.token_hex(4)
    scenario = plan.function or plan.script.stem
    word = "".join(c if c.isalnum() and c.isascii() else "-" for c in scenario)[:40].strip("-")
    prefix = "-".join(filter(None, ("hanglab", word, job)))
    return Label(job, prefix, owners.labels_of(job, plan.run_dir, scenario))


def user_of_containers() -> tuple[int, int]:
    """User and group of everything in them: hanglab's own, or the image's where that is root."""
    return image.USER if os.geteuid() == 0 else (os.geteuid(), os.getegid())


def settings_of(plan: JobPlan, number: int, ranks: tuple[int, ...], nodes: int) -> HostSettings:
    """Settings of node ``number``, changed by the faults that begin there."""
    settings = HostSettings(ranks=ranks, environment=node_environment(plan, number, nodes))
    for fault in plan.faults:
        fault.prepare(number, settings)
        if strikes_in(fault, plan.faulty):
            fault.settings(number, settings)
    return settings


def write_order(plan: JobPlan, number: int, settings: HostSettings, shared: Path) -> None:
    """Tells the node's first process what to do."""
    order = {
        "number": number,
        "ranks": list(settings.ranks),
        "world_size": plan.world_size,
        "script": os.path.abspath(plan.script),
        "function": plan.function,
        "arguments": list(plan.arguments),
        "wrap": settings.wrap,
        "limit_s": plan.deadline_s + protocol.GRACE_S,
    }
    (shared / f"node{number}.json").write_text(json.dumps(order))


def make_containers(
    client: DockerClient,
    plan: JobPlan,
    label: Label,
    image_id: str,
    shared: Path,
    settings: Sequence[HostSettings],
    made: dict[int, Container],
) -> None:
    """Creates and starts a container for each node; ``made`` gets those that there are.

    Raises LaunchError.
    """
    user = user_of_containers()
    common = {
        "image": image_id,
        "entrypoint": [image.PYTHON, "-m", "hanglab.harness.launchers.docker.node_main"],
        "user": f"{user[0]}:{user[1]}",
        "network": label.prefix,
        "healthcheck": {"test": ["NONE"]},
        "detach": True,
        **_places(plan, shared, user),
    }

    def make(number: int) -> None:
        options = {**common, **_options(plan, settings[number])}
        options["mounts"] = [*common["mounts"], *read_only_mounts(settings[number].read_only)]
        with explained(f"Starting node {number}"):
            made[number] = container = client.containers.create(
                command=[f"{container_paths.SHARED}/node{number}.json"],
                name=label.of_node(number),
                hostname=f"node{number}",
                labels={**label.labels, owners.NODE: str(number)},
                **options,
            )
            container.start()
            container.reload()

    with ThreadPoolExecutor(len(settings), "hanglab-docker") as pool:
        futures = [pool.submit(make, number) for number in range(len(settings))]
    for future in futures:
        future.result()


def _options(plan: JobPlan, settings: HostSettings) -> dict[str, Any]:
    from docker.types import DeviceRequest, Ulimit

    gpus = devices_of(settings.ranks, plan.environment.get("CUDA_VISIBLE_DEVICES", ""))
    options: dict[str, Any] = {
        "environment": settings.environment,
        # Lets the recorder's agent read the stacks of processes of its own user.
        "cap_add": sorted({"SYS_PTRACE", *settings.cap_add}),
        "devices": settings.devices,
        "tmpfs": settings.tmpfs,
        "ulimits": [
            Ulimit(name=name, soft=limit, hard=limit) for name, limit in settings.ulimits.items()
        ],
        "device_requests": [DeviceRequest(device_ids=gpus, capabilities=[["gpu"]])] if gpus else [],
    }
    if settings.shm_bytes is not None:
        options["shm_size"] = settings.shm_bytes
    if settings.memory_bytes is not None:
        # As much with swap as without: none.
        options["mem_limit"] = options["memswap_limit"] = settings.memory_bytes
    if settings.cpus is not None:
        options["nano_cpus"] = int(settings.cpus * 1e9)
    if settings.pids is not None:
        options["pids_limit"] = settings.pids
    return options


def _places(plan: JobPlan, shared: Path, user: tuple[int, int]) -> dict[str, Any]:
    """Mounts that all nodes have, and the folder that ranks start in."""
    from docker.types import Mount

    script = Path(os.path.abspath(plan.script))
    program = shared_path(script, user)
    written = {
        os.path.abspath(plan.case_dir): container_paths.CASE,
        os.path.abspath(plan.log_dir): container_paths.LOG,
        str(shared): container_paths.SHARED,
    }
    read = {str(program): str(program), **source_folders()}
    mounts = [Mount(target, source, type="bind") for source, target in written.items()]
    mounts += read_only_mounts({target: source for source, target in read.items()})
    here = Path.cwd()
    visible = program.is_dir() and here.is_relative_to(program)
    return {"mounts": mounts, "working_dir": str(here) if visible else "/tmp"}


def read_only_mounts(folders: Mapping[str, str]) -> list[Mount]:
    """Mounts for folders of this machine, by their path in the container."""
    from docker.types import Mount

    return [Mount(path, source, type="bind", read_only=True) for path, source in folders.items()]
