"""The table of launchers: what each can do, and which one a scenario's jobs get."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from hanglab.harness.launchers.protocol import Launcher


@dataclass(frozen=True)
class LauncherSpec:
    """Properties of a launcher that are needed before it is made."""

    module: str
    attribute: str
    #: Ranks import torch at every start, which takes seconds.
    cold: bool = False
    #: Capabilities that the machine needs for it.
    needs: tuple[str, ...] = ()
    #: Ranks run on hosts made for the job (network, file systems, control groups), to which
    #: faults can be done; else they share this machine.
    own_hosts: bool = False
    #: Ranks may run on several hosts.
    spread: bool = False
    #: Capabilities that its ranks never have, and why.
    lacks: frozenset[str] = frozenset()
    reason: str = ""


#: By name.  A scenario that needs a capability of a launcher's name runs there, whatever was
#: asked for.
LAUNCHERS: Final = {
    "local": LauncherSpec("hanglab.harness.launchers.local", "LocalLauncher"),
    "torchrun": LauncherSpec("hanglab.harness.launchers.torchrun", "TorchrunLauncher", cold=True),
    "docker": LauncherSpec(
        "hanglab.harness.launchers.docker.launcher",
        "DockerLauncher",
        cold=True,
        needs=("docker", "image"),
        own_hosts=True,
        spread=True,
        lacks=frozenset({"private_mounts", "private_storage", "root"}),
        reason="ranks in containers are not root",
    ),
    "slurm": LauncherSpec(
        "hanglab.harness.launchers.slurm.launcher",
        "SlurmLauncher",
        cold=True,
        needs=("slurm",),
        spread=True,
    ),
    "kubernetes": LauncherSpec(
        "hanglab.harness.launchers.kubernetes.launcher",
        "KubernetesLauncher",
        cold=True,
        needs=("kubernetes",),
        spread=True,
        lacks=frozenset({"private_mounts", "private_storage", "root"}),
        reason="ranks in pods are not root",
    ),
}
DEFAULT_LAUNCHER: Final = next(iter(LAUNCHERS))


def make_launcher(name: str) -> Launcher:
    """The launcher of that name, which must be one of LAUNCHERS."""
    spec = LAUNCHERS[name]
    launcher: Launcher = getattr(importlib.import_module(spec.module), spec.attribute)()
    return launcher


def launcher_of(needs: Collection[str], asked: str) -> str:
    """Name of the launcher for what needs these capabilities, where ``asked`` was asked for."""
    return next((name for name in LAUNCHERS if name in needs), asked)


class Launchers:
    """Launchers by name, each made when it is first asked for.  Safe to share among threads."""

    def __init__(self, make: Callable[[str], Launcher] = make_launcher) -> None:
        self._make = make
        self._made: dict[str, Launcher] = {}
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> Launcher:
        with self._lock:
            if name not in self._made:
                self._made[name] = self._make(name)
            return self._made[name]

    def close(self) -> None:
        """Ends what they keep running, and every job that they started."""
        with self._lock:
            made = list(self._made.values())
            self._made.clear()
        for launcher in made:
            launcher.close()
