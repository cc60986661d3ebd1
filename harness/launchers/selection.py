"""Which launcher a scenario's jobs get, and the launchers of one run."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Collection
from typing import Final

from hanglab.harness.launchers.protocol import Launcher

LAUNCHERS: Final = {
    "local": ("hanglab.harness.launchers.local", "LocalLauncher"),
    "torchrun": ("hanglab.harness.launchers.torchrun", "TorchrunLauncher"),
    "docker": ("hanglab.harness.launchers.docker.launcher", "DockerLauncher"),
}
#: A scenario that needs it runs in containers, whatever was asked for.
CONTAINERS: Final = "docker"


def make_launcher(name: str) -> Launcher:
    """The launcher of that name, which must be one of LAUNCHERS."""
    module, attribute = LAUNCHERS[name]
    launcher: Launcher = getattr(importlib.import_module(module), attribute)()
    return launcher


def launcher_of(needs: Collection[str], asked: str) -> str:
    """Name of the launcher for what needs these capabilities, where ``asked`` was asked for."""
    return CONTAINERS if CONTAINERS in needs else asked


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
