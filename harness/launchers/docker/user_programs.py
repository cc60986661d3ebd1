"""Bringing a user's program into containers: at its own path, read only."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hanglab.harness.launchers.docker import container_paths, image
from hanglab.harness.launchers.protocol import LaunchError

#: Folders that a container has itself, and that must not be hidden by the host's.
_OWN = tuple(
    map(Path, ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys",
               "/usr", "/var", "/opt/hanglab", container_paths.SOURCE,
               container_paths.CASE, container_paths.LOG))
)  # fmt: skip


class UnreadableProgram(LaunchError):
    """The containers' user may not read the program."""

    advice = "Let others read it (chmod o+r), or run hanglab as its owner and not as root."


def shared_path(script: Path, user: tuple[int, int]) -> Path:
    """The script's folder, so that it finds what lies beside it, or else the script alone.

    Alone where the folder would hide the container's own, or may not be read by
    ``user``.  Raises UnreadableProgram.
    """
    folder = script.parent
    if not _readable(script, user, stat.S_IROTH):
        raise UnreadableProgram(f"{script} cannot be read by user {user[0]} in a container.")
    hides = len(folder.parts) <= 2 or any(folder.is_relative_to(own) for own in _OWN)
    if hides or not _readable(folder, user, stat.S_IROTH | stat.S_IXOTH):
        return script
    return folder


def source_folders() -> dict[str, str]:
    """Folders of hanglab's code outside and inside, where a checkout stands in for the image's."""
    root = image.checkout()
    if root is None:
        return {}
    return {
        str(root / name): f"{container_paths.SOURCE}/hanglab/{name}"
        for name in ("analyzer", "harness", "recorder", "scenarios")
    }


def _readable(path: Path, user: tuple[int, int], others: int) -> bool:
    """True if a user may read it, as the mode bits ``others`` say for everybody else."""
    try:
        status = path.stat()
    except OSError:
        return False
    if user[0] == 0:
        return True
    if status.st_uid == user[0]:
        return status.st_mode & (others << 6) == others << 6
    if status.st_gid == user[1] or (user[0] == os.geteuid() and status.st_gid in os.getgroups()):
        return status.st_mode & (others << 3) == others << 3
    return status.st_mode & others == others
