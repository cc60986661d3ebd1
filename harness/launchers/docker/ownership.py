"""Lending folders to the containers' user, where hanglab itself is root."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def give(user: tuple[int, int], *folders: Path) -> None:
    """Lets ``user`` write into folders of this process.  Raises OSError."""
    if os.geteuid() == 0:
        for folder in folders:
            os.chown(folder, *user)


def take_back(user: tuple[int, int], *folders: Path) -> None:
    """Makes what was lent, and what ``user`` has written there, this process's own again."""
    if os.geteuid() != 0:
        return
    for top in folders:
        for folder, _, files in os.walk(top):
            for path in [folder, *(os.path.join(folder, name) for name in files)]:
                with suppress(OSError):
                    os.chown(path, os.geteuid(), os.getegid(), follow_symlinks=False)
