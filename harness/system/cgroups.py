"""Control groups of hanglab's own, to put ranks under limits, in either version."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from hanglab.recorder.system.cgroups import levels_of, mounts

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
    if mount.version == 2:
        try:
            enabled = (top / "cgroup.subtree_control").read_text().split()
        except OSError as error:
            raise NoGroup(f"{top}: {error.strerror}") from None
        if controller not in enabled:
            raise NoGroup(f"the {controller} controller is not enabled in {top}")
    if pid is not None and mount.version == 1:
        own, its = (
            levels_of(Path(f"/proc/{who}/cgroup").read_text(), mounted)[controller][0].folder
            for who in (os.getpid(), pid)
        )
        if its != own:
            top = Path(its)
    _sweep(top)
    folder = top / f"hanglab-{os.getpid()}-{secrets.token_hex(3)}"
    try:
        folder.mkdir()
    except OSError as error:
        raise NoGroup(f"{top}: {error.strerror}") from None
    return Group(folder, mount.version)


def _sweep(top: Path) -> None:
    with contextlib.suppress(OSError):
        for folder in top.iterdir():
            match = _NAME.fullmatch(folder.name)
            if match and not os.path.exists(f"/proc/{match[1]}"):
                with contextlib.suppress(OSError):  # still in use
                    folder.rmdir()


def group_folder(controller: str, pid: int) -> tuple[Path, int]:
    """Folder of a process's control group, and its version (1 or 2).  Raises OSError."""
    points: dict[str, Path] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(maxsplit=2)
        if kind == "cgroup2":
            points[""] = Path(left.split()[4])
        elif kind == "cgroup":
            for option in options.split(","):
                points[option] = Path(left.split()[4])
    paths: dict[str, str] = {}
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            paths[name] = path.lstrip("/")
    if controller in points and controller in paths:
        return points[controller] / paths[controller], 1
    if "" in points and "" in paths:
        return points[""] / paths[""], 2
    raise OSError(f"process {pid} is in no {controller} control group")
