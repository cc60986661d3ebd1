"""Mounts that only the rank sees that makes them, and that are gone when it is.

Called inside ranks, by :class:`hanglab.harness.rank.job.Job`.  Each needs root.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import threading
from pathlib import Path

_CLONE_NEWNS = 0x00020000
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 2, 4, 0x4000, 1 << 18

_own_namespace = threading.local()


def mount_disk(mebibytes: float, point: str | None = None) -> Path:
    """A file system in memory with so much room, over ``point`` or a new folder."""
    _enter_own_namespace()
    folder = point or tempfile.mkdtemp(prefix="disk-")
    mount("tmpfs", folder, "tmpfs", f"size={int(mebibytes * 1024)}k,mode=1777")
    return Path(folder)


def mount(source: str, point: str, kind: str, options: str) -> None:
    """Mounts for the calling thread and those that it starts later.  Raises OSError."""
    _enter_own_namespace()
    _check(
        _libc().mount(
            source.encode(), point.encode(), kind.encode(), _MS_NOSUID | _MS_NODEV, options.encode()
        )
    )


def _enter_own_namespace() -> None:
    if getattr(_own_namespace, "entered", False):
        return
    _check(_libc().unshare(_CLONE_NEWNS))
    # Otherwise what is mounted here appears outside as well.
    _check(_libc().mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None))
    _own_namespace.entered = True


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
