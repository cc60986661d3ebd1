"""Disks that are full at the moment in which a write fails; soon after they may not be any more.

Looked at from inside, since only the rank sees the mounts of its namespace.
"""

from __future__ import annotations

import errno
import re
import threading
from typing import Any

from hanglab.recorder.case.file_system_space import NO_SPACE, NO_SPACE_TEXT
from hanglab.recorder.system.mount_table import read_mounts, space_of

#: Errors of writing that do not give the reason, such as those of torch.save and sqlite.
_FAILED_WRITE = re.compile(
    r"PytorchStreamWriter|iostream error|unexpected pos \d+ vs|file write failed|disk I/O error"
    rf"|disk is full|{NO_SPACE_TEXT}|write failed|short write"
)
_STORAGE = re.compile(
    r"ext[234]|xfs|btrfs|zfs|tmpfs|overlay|nfs4?|lustre|ceph|gpfs|beegfs|fuse.*|9p|virtiofs|f2fs"
    r"|cifs|smb3|wekafs|vfat|ramfs"
)
#: Mounts that are looked at, and seconds for all of them: one may not answer.
_MOST = 64
_PATIENCE_S = 0.2


def full_disks(value: BaseException) -> list[dict[str, Any]]:
    """Writable file systems without room, as records.FullDisk; [] unless a write has failed."""
    if not any(_is_failed_write(error) for error in chain(value)):
        return []
    found: list[dict[str, Any]] = []
    looking = threading.Thread(
        target=_look, args=(found,), name="hanglab-file-systems", daemon=True
    )
    looking.start()
    looking.join(_PATIENCE_S)
    return list(found)


def chain(value: BaseException) -> list[BaseException]:
    """The exception and what led to it, the latest first."""
    found: list[BaseException] = []
    error: BaseException | None = value
    while error is not None and len(found) < 8 and error not in found:
        found.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found


def _is_failed_write(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in NO_SPACE or error.errno == errno.EIO
    return bool(_FAILED_WRITE.search(str(error)))


def _look(found: list[dict[str, Any]]) -> None:
    try:
        # Of this thread, which has the namespace of the one that started it.
        with open("/proc/thread-self/mountinfo", encoding="utf-8", errors="replace") as file:
            mounts = read_mounts(file.read())
    except OSError:
        return
    seen = set()
    for mount in mounts[-_MOST:]:
        if not _STORAGE.fullmatch(mount.filesystem) or mount.device in seen or mount.read_only:
            continue
        seen.add(mount.device)
        try:
            space = space_of(mount.point)
        except OSError:
            continue
        if space.is_full:
            found.append(
                {
                    "path": mount.point,
                    "filesystem": mount.filesystem,
                    "size_bytes": space.size_bytes,
                    "free_bytes": space.free_bytes,
                    "no_inodes": space.free_inodes == 0,
                }
            )
