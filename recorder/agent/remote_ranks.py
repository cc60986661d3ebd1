"""Ranks of the job on other hosts, as far as a Case on shared storage shows them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from hanglab.recorder.agent.counters import CounterFile
from hanglab.recorder.case import folders

#: Seconds between two searches for ranks that have registered.
_EVERY = 0.3


class RemoteRanks:
    """Says whether any of them moves; their processes are out of sight."""

    def __init__(self, hosts: Path, own: str) -> None:
        """``hosts`` is the Case's folder of hosts, ``own`` the name of this host's in it."""
        self._hosts = hosts
        self._own = own
        self._files: dict[Path, CounterFile] = {}
        self._last = float("-inf")

    def moved(self) -> bool:
        """True if counters have changed, or ranks have come, since the last call."""
        new = self._find()
        changes = [file.changes() for file in self._files.values()]
        return new or any(changes)

    @property
    def begun(self) -> bool:
        return any(file.begun for file in self._files.values())

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _find(self) -> bool:
        now = time.monotonic()
        if now - self._last < _EVERY:
            return False
        self._last = now
        before = len(self._files)
        for host in _names(self._hosts):
            if host == self._own:
                continue
            for name in _names(self._hosts / host / folders.RANKS):
                folder = self._hosts / host / folders.RANKS / name
                if folders.parse_rank_folder(name) is not None and folder not in self._files:
                    self._files[folder] = CounterFile(folder)
        return len(self._files) > before


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
