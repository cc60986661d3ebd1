"""How ranks ended: seen at the moment when it happens, or told by who collected them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from hanglab.recorder.agent.watched import WatchedRank
from hanglab.recorder.rank.reaping import NAME, read_exits


class ExitWatch:
    """A descriptor per rank that becomes readable when the rank's process ends."""

    def __init__(self, runtime: Path) -> None:
        self._ranks: dict[int, WatchedRank] = {}
        self._known: set[int] = set()
        self._path = runtime / NAME
        self._read = 0

    def add(self, rank: WatchedRank) -> None:
        """Kernels before 5.3 and Pythons before 3.9 have no such descriptors."""
        if rank.pid in self._known:
            return
        self._known.add(rank.pid)
        with contextlib.suppress(AttributeError, OSError):
            self._ranks[os.pidfd_open(rank.pid)] = rank

    @property
    def descriptors(self) -> list[int]:
        return list(self._ranks)

    def notice(self, descriptor: int) -> None:
        """Its process has ended: read how, before its parent collects it."""
        rank = self._ranks.pop(descriptor, None)
        if rank is None:
            return
        os.close(descriptor)
        stat = rank.stat()
        # Without the right to look, the status reads as 0.
        if stat is not None and stat.state == "Z" and stat.exit_status:
            rank.seen_status = stat.exit_status

    def read(self, ranks: list[WatchedRank]) -> None:
        """Take in what launchers have written down since the last call."""
        told, self._read = read_exits(self._path, self._read)
        for rank in ranks:
            if rank.pid in told and rank.stat() is None:
                rank.seen_status = told[rank.pid]
                rank.told = True

    def close(self) -> None:
        for descriptor in self._ranks:
            os.close(descriptor)
        self._ranks.clear()
