"""Snapshots of what a capture saw of a rank, since the rank writes on in the same files.

A rank that is interrupted after the capture ends: its progress goes on, and at its
end it writes its buffers anew.  Where it hung would be hidden by what it did later.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
from pathlib import Path
from typing import Any

from hanglab.recorder.case import folders
from hanglab.recorder.case.evidence_files import BRANCHES, PROGRESS, evidence_files
from hanglab.recorder.case.file_kinds import EvidenceFile, MappedFile, Scope
from hanglab.recorder.case.progress import NotProgress, read_counters


def keep_mapped(folder: Path) -> None:
    """Copy what the rank has mapped as it is now, unless it has left what was kept of it.

    Raises OSError.
    """
    try:
        data = (folder / PROGRESS.name).read_bytes()
    except FileNotFoundError:  # the rank could not have one
        return
    kept = folder / PROGRESS.snapshot_name
    if _phase(data) == "exiting" and kept.exists() and _phase(kept.read_bytes()) != "exiting":
        return
    folders.write_whole(kept, data, sparse=True)
    with contextlib.suppress(FileNotFoundError):
        branches = (folder / BRANCHES.name).read_bytes()
        folders.write_whole(folder / BRANCHES.snapshot_name, branches, sparse=True)


def make_sparse(folder: Path) -> None:
    """Give back the room of mapped files that their rank never used.

    They are laid out for any job, and of a small one most is zeros.  Only of a rank that has
    ended: a living one has them mapped.
    """
    for file in (PROGRESS, BRANCHES):
        path = folder / file.name
        with contextlib.suppress(OSError):  # without room for a second one it stays as it is
            folders.write_whole(path, path.read_bytes(), sparse=True)


def keep_documents(folder: Path) -> None:
    """Have what the rank wrote when it was asked to outlast what it writes later.

    It replaces these files whole, so a second name for each takes no room until then.
    Raises OSError.
    """
    for file in _documents():
        path, kept = folder / file.name, folder / file.snapshot_name
        if not path.exists():
            continue
        with contextlib.suppress(FileNotFoundError):
            kept.unlink()
        try:
            os.link(path, kept)
        except OSError:  # a file system without second names
            folders.write_whole(kept, path.read_bytes())


def drop_unchanged(folder: Path) -> None:
    """Remove what was kept of documents that are still the same."""
    for file in _documents():
        kept = folder / file.snapshot_name
        with contextlib.suppress(OSError):
            if filecmp.cmp(folder / file.name, kept, shallow=False):
                kept.unlink()


def forget(folder: Path, scope: Scope = Scope.RANK) -> None:
    """Remove what the capture made in the folder of a rank, or of a host: it counts no longer."""
    for file in evidence_files(scope):
        for name in file.names if file.of_capture else file.names[1:]:
            with contextlib.suppress(OSError):
                (folder / name).unlink()


def _documents() -> list[EvidenceFile[Any]]:
    """Files that the rank replaces whole, where it writes them at all."""
    return [
        file
        for file in evidence_files(Scope.RANK)
        if file.snapshot and not isinstance(file, MappedFile)
    ]


def _phase(data: bytes) -> str:
    try:
        return read_counters(data).phase
    except NotProgress:
        return ""
