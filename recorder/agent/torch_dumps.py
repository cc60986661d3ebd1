"""Dumps that torch writes by itself when an operation times out, or when its pipe is written to."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from hanglab.recorder.agent.watched_rank import WatchedRank
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders

#: Seconds within which torch must have begun to answer its pipe; it looks at it every second.
_PIPE_DEADLINE = 3.0
_LIMIT = 1 << 30
#: Variables that name the dumps, the newer one first, and the pipes.
_DUMP_NAMES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_PIPE_NAME = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"


class TorchDumps:
    """Files ``<prefix><rank>``, and the pipes ``<pipe><rank>.pipe`` that ask for them."""

    def __init__(self, prefix: Path | None, pipe: str | None) -> None:
        self._prefix = prefix
        self._pipe = pipe
        self._seen: dict[int, int] = {}
        #: Ranks whose dump was asked for.
        self._asked: set[int] = set()

    def look(self) -> list[int]:
        """Ranks that have written a dump unasked since the last call."""
        new = []
        for rank, changed in self._files().items():
            if self._seen.get(rank) != changed:
                self._seen[rank] = changed
                if rank not in self._asked:
                    new.append(rank)
        return new

    def path(self, rank: int) -> Path | None:
        if self._prefix is None:
            return None
        return self._prefix.with_name(f"{self._prefix.name}{rank}")

    def ask(self, rank: WatchedRank) -> Path | None:
        """Have torch itself write its buffer, which needs nothing of the interpreter.

        The file, once it is there and grows no more; None where torch has no pipe
        or does not answer.
        """
        target = self.path(rank.rank)
        if self._pipe is None or target is None:
            return None
        before = _changed(target)
        self._asked.add(rank.rank)
        with contextlib.suppress(OSError):
            # Without a reader there is nobody to ask; never create a plain file there.
            fd = os.open(f"{self._pipe}{rank.rank}.pipe", os.O_WRONLY | os.O_NONBLOCK)
            try:
                os.write(fd, b"1\n")
            finally:
                os.close(fd)
            return _written(target, before)
        return None

    def keep(self, rank: WatchedRank, force: bool = False) -> bool:
        """Take torch's own dump for the rank's buffer, if it could not be had otherwise."""
        source = self.path(rank.rank)
        target = rank.folder / files.FLIGHT_RECORDER.name
        if source is None or (target.exists() and not force):
            return False
        with contextlib.suppress(OSError):
            if 0 < source.stat().st_size < _LIMIT:
                folders.write_whole(target, source.read_bytes())
                return True
        return False

    def _files(self) -> dict[int, int]:
        """Time of the last change of each rank's file, in nanoseconds."""
        found: dict[int, int] = {}
        prefix = self._prefix
        if prefix is None:
            return found
        with contextlib.suppress(OSError):
            for entry in os.scandir(prefix.parent):
                number = entry.name.removeprefix(prefix.name)
                if entry.name.startswith(prefix.name) and number.isdecimal():
                    with contextlib.suppress(OSError):
                        status = entry.stat(follow_symlinks=False)
                        if status.st_size:
                            found[int(number)] = status.st_mtime_ns
        return found


def prefixes(environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Prefix of the dumps and of the pipes, by a rank's environment."""
    dumps = (environment.get(name) for name in _DUMP_NAMES)
    return next(filter(None, dumps), None), environment.get(_PIPE_NAME) or None


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _written(path: Path, before: int) -> Path | None:
    until = time.monotonic() + _PIPE_DEADLINE
    size = -1
    while time.monotonic() < until:
        if _changed(path) != before:
            now = path.stat().st_size
            if now and now == size:
                return path
            size = now
        time.sleep(0.05)
    return None
