"""Folders that a command fills, and that must be new."""

from __future__ import annotations

from pathlib import Path


def check_unused(folder: Path) -> None:
    """Raises UsageError rather than overwrite, or mix, anything."""
    from hanglab.harness.errors import UsageError

    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is no folder.", "Give a new folder.")
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty.", "Give a new folder: nothing is overwritten.")
