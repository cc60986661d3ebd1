"""Keeping what a capture saw of a rank, since the rank writes on in the same files.

A rank that is interrupted after the capture ends: its progress goes on, and at its
end it writes its buffers anew.  Where it hung would be hidden by what it did later.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
from pathlib import Path

from hanglab.recorder.case import folders
from hanglab.recorder.case.progress import NotProgress, read_counters

#: What a rank replaces whole, where it writes it at all.
_DOCUMENTS = {name: kept for name, kept in folders.CAPTURED.items() if name != folders.PROGRESS}


def keep_progress(folder: Path) -> None:
    """Copy the progress file as it is now, unless the rank has left what was kept of it.

    Raises OSError.
    """
    try:
        data = (folder / folders.PROGRESS).read_bytes()
    except FileNotFoundError:  # the rank could not have one
        return
    kept = folder / folders.PROGRESS_CAPTURED
    if _phase(data) == "exiting" and kept.exists() and _phase(kept.read_bytes()) != "exiting":
        return
    folders.write_whole(kept, data)


def keep_documents(folder: Path) -> None:
    """Have what the rank wrote when it was asked to outlast what it writes later.

    It replaces these files whole, so a second name for each takes no room until then.
    Raises OSError.
    """
    for name, kept in _DOCUMENTS.items():
        if not (folder / name).exists():
            continue
        with contextlib.suppress(FileNotFoundError):
            (folder / kept).unlink()
        try:
            os.link(folder / name, folder / kept)
        except OSError:  # a file system without second names
            folders.write_whole(folder / kept, (folder / name).read_bytes())


def drop_doubles(folder: Path) -> None:
    """Remove what was kept of documents that are still the same."""
    for name, kept in _DOCUMENTS.items():
        with contextlib.suppress(OSError):
            if filecmp.cmp(folder / name, folder / kept, shallow=False):
                (folder / kept).unlink()


def forget(folder: Path) -> None:
    """The capture counts no longer."""
    for kept in folders.CAPTURED.values():
        with contextlib.suppress(OSError):
            (folder / kept).unlink()


def _phase(data: bytes) -> str:
    try:
        return read_counters(data).phase
    except NotProgress:
        return ""
