"""Control groups of a container as its host has them, in either version."""

from __future__ import annotations

from pathlib import Path


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
