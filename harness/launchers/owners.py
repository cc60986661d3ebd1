"""Labels that say whose a container, network or job is, and whether that one still lives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from hanglab.recorder.system import procfs

OWNER: Final = "hanglab.owner"
JOB: Final = "hanglab.job"
NODE: Final = "hanglab.node"
SCENARIO: Final = "hanglab.scenario"
RUN: Final = "hanglab.run"
#: Of a network: the temporary folder that hanglab shared with the nodes.
SHARED: Final = "hanglab.shared"


def labels_of(job: str, run: Path, scenario: str) -> dict[str, str]:
    """Labels of everything that belongs to a job of this process."""
    return {OWNER: identity(os.getpid()), JOB: job, RUN: str(run), SCENARIO: scenario}


def is_dead(labels: Mapping[str, str]) -> bool | None:
    """True if the owner has ended; None where it cannot be seen from here.

    That is so on another machine that shares the daemon, and in another
    namespace of processes.
    """
    owner = labels.get(OWNER, "")
    machine, boot, namespace, pid = (*owner.split(":"), "", "", "", "")[:4]
    if boot != _boot():
        return True if machine and machine == _machine() else None
    if namespace != _namespace() or not pid.isdecimal():
        return None
    return identity(int(pid)) != owner


def identity(pid: int) -> str:
    """A process for all time: machine, boot, namespace, number, and start in ticks since boot."""
    return f"{_machine()}:{_boot()}:{_namespace()}:{pid}:{_started(pid)}"


def _machine() -> str:
    with suppress(OSError):
        return Path("/etc/machine-id").read_text().strip()
    return ""


def _boot() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _namespace() -> str:
    return procfs.process_namespace("self").strip("pid:[]")


def _started(pid: int) -> str:
    stat = procfs.stat(pid)
    return str(stat.started) if stat is not None and stat.state not in "ZX" else ""
