"""Record of a node for the Case, of what only Docker knows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.case.records import Container as Record
from hanglab.recorder.case.writer import clock, write

if TYPE_CHECKING:
    from docker.models.containers import Container


def facts_of(container: Container) -> Record:
    """Asks Docker anew.  Raises what the SDK raises."""
    container.reload()
    attributes: dict[str, Any] = container.attrs
    state: dict[str, Any] = attributes.get("State") or {}
    limits: dict[str, Any] = attributes.get("HostConfig") or {}
    networks: dict[str, Any] = (attributes.get("NetworkSettings") or {}).get("Networks") or {}
    running = bool(state.get("Running"))
    addresses = [str(one.get("IPAddress")) for one in networks.values() if one.get("IPAddress")]
    nano_cpus = limits.get("NanoCpus") or 0
    quota, period = limits.get("CpuQuota") or 0, limits.get("CpuPeriod") or 100_000
    return Record(
        at=clock(),
        id=str(container.id)[:12],
        status=str(state.get("Status", "")),
        exit_code=None if running else state.get("ExitCode"),
        oom_killed=bool(state.get("OOMKilled")),
        restarts=int(attributes.get("RestartCount") or 0),
        memory_bytes=limits.get("Memory") or None,
        cpus=nano_cpus / 1e9 if nano_cpus else (quota / period if quota > 0 else None),
        pids=limits.get("PidsLimit") if (limits.get("PidsLimit") or 0) > 0 else None,
        shm_bytes=limits.get("ShmSize") or None,
        addresses=addresses,
        networks=len(networks),
    )


class KeptFacts:
    """Docker's records of a job's nodes in its Case."""

    def __init__(self) -> None:
        self._kept: dict[str, Record] = {}

    def keep(self, case: Path, found: Mapping[str, Record]) -> None:
        """Writes records by the nodes' names: the first of each, and what is known only later."""
        for name, now in found.items():
            before = self._kept.get(name)
            if before is not None:
                now = msgspec.structs.replace(before, oom_killed=before.oom_killed | now.oom_killed)
            self._kept[name] = now
            with suppress(OSError):
                write(folders.host_folder(case, name), files.CONTAINER, now)
