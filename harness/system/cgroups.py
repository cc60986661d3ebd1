"""Control groups of hanglab's own, to put ranks under limits, in either version."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from hanglab.recorder.system.cgroups import group_of, mounts

_NAME = re.compile(r"hanglab-(\d+)-[0-9a-f]+")


class NoGroup(OSError):
    """This machine lets nobody make such a group; the text says why."""


@dataclass(frozen=True)
class Group:
    """A control group that was made here."""

    folder: Path
    version: int

    def set(self, name: str, value: str) -> None:
        (self.folder / name).write_text(value)

    def add(self, pid: int) -> None:
        """Moves a process with all its threads; those it starts later follow."""
        (self.folder / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        """Lets whoever is left in it go, and removes it."""
        with contextlib.suppress(OSError):
            for pid in (self.folder / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):
                    (self.folder.parent / "cgroup.procs").write_text(pid)
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def make(controller: str, pid: int | None = None) -> Group:
    """A new group under ``cpu``, ``memory`` or ``pids``.  Raises NoGroup.

    It lies at the top of the hierarchy, so that no other limit interferes; for a process in a
    container it lies below the container's, which alone can be seen in there.  (In version 2 a
    group that has processes can have none below it with limits of its own.)
    Groups that a killed hanglab has left are removed on the way.
    """
    mounted = mounts(Path("/proc/self/mountinfo").read_text())
    mount = mounted.get(controller) or mounted.get("")
    if mount is None:
        raise NoGroup("no control group file system is mounted")
    top = Path(mount.point)
    version = 2 if mount.filesystem == "cgroup2" else 1
    if version == 2:
        try:
            enabled = (top / "cgroup.subtree_control").read_text().split()
        except OSError as error:
            raise NoGroup(f"{top}: {error.strerror}") from None
        if controller not in enabled:
            raise NoGroup(f"the {controller} controller is not enabled in {top}")
    if pid is not None and version == 1:
        its = group_of(controller, pid).folder
        if its != group_of(controller, os.getpid()).folder:
            top = Path(its)
    _sweep(top)
    folder = top / f"hanglab-{os.getpid()}-{secrets.token_hex(3)}"
    try:
        folder.mkdir()
    except OSError as error:
        raise NoGroup(f"{top}: {error.strerror}") from None
    return Group(folder, version)


def _sweep(top: Path) -> None:
    with contextlib.suppress(OSError):
        for folder in top.iterdir():
            match = _NAME.fullmatch(folder.name)
            if match and not os.path.exists(f"/proc/{match[1]}"):
                with contextlib.suppress(OSError):  # still in use
                    folder.rmdir()
