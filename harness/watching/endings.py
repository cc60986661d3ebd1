"""Ends of ranks, seen as they happen, and the signature of an attempt's first failure."""

from __future__ import annotations

import contextlib
import os
import select
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hanglab.recorder.agent.exits import may_read, status_of
from hanglab.recorder.attach.tree import FoundRank
from hanglab.recorder.system import procfs

_LONGEST_FILE = 1 << 16
_LONGEST_TEXT = 200


@dataclass(frozen=True)
class SeenEnding:
    """End of a rank's process: its exit code or signal, where either could be had."""

    pid: int
    rank: FoundRank
    code: int | None
    signal: int | None
    #: The error as torch's launcher has it from the rank; "" without.
    error: str = ""

    @property
    def failed(self) -> bool:
        """True unless it ended well, or nobody knows how."""
        return bool(self.code or self.signal or self.error)

    @property
    def signature(self) -> str:
        """Words that are the same for the same failure: rank, manner, kind of error."""
        kind = self.error.partition(":")[0]
        how = f"signal {self.signal}" if self.signal else f"code {self.code}"
        return f"rank {self.rank.rank} {how}" + (f" {kind}" if kind else "")


class EndWatch:
    """A descriptor per rank that becomes readable when the rank's process ends."""

    def __init__(self) -> None:
        self._ranks: dict[int, tuple[FoundRank, Path | None]] = {}
        self._known: dict[int, int] = {}
        self._poll = select.poll()

    def add(self, rank: FoundRank) -> bool:
        """True if its end will be seen from now on.

        Kernels before 5.3 have no such descriptors: there nobody tells how ranks ended.
        """
        if rank.pid in self._known:
            return False
        with contextlib.suppress(AttributeError, OSError):
            descriptor = os.pidfd_open(rank.pid)
            named = procfs.environment(rank.pid).get("TORCHELASTIC_ERROR_FILE")
            self._ranks[descriptor] = (rank, Path(named) if named else None)
            self._known[rank.pid] = descriptor
            self._poll.register(descriptor, select.POLLIN)
            return True
        return False

    def wait(self, seconds: float) -> list[SeenEnding]:
        """Waits so long, or until ranks have ended: those."""
        found = []
        for descriptor, _ in self._poll.poll(seconds * 1000):
            rank, errors = self._ranks.pop(descriptor)
            self._poll.unregister(descriptor)
            del self._known[rank.pid]
            stat = procfs.stat(rank.pid)
            if stat is not None and stat.state == "Z" and may_read(rank.pid):
                status: int | None = stat.exit_status
            else:
                status = status_of(descriptor)
            os.close(descriptor)
            code = signal = None
            if status is not None:
                if os.WIFSIGNALED(status):
                    signal = os.WTERMSIG(status)
                else:
                    code = os.WEXITSTATUS(status)
            found.append(SeenEnding(rank.pid, rank, code, signal, _error(errors, rank.pid)))
        return found

    def close(self) -> None:
        for descriptor in self._ranks:
            os.close(descriptor)
        self._ranks.clear()
        self._known.clear()


def _error(path: Path | None, pid: int) -> str:
    """First line of the error that the rank left for its launcher.

    The file is the rank's own word: read without following links, and a part at most.
    """
    if path is None:
        return ""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            data = os.read(descriptor, _LONGEST_FILE)
        finally:
            os.close(descriptor)
        message = msgspec.json.decode(data, type=dict[str, object]).get("message")
    except (OSError, msgspec.MsgspecError):
        return ""
    text = message.get("message") if isinstance(message, dict) else message
    line = str(text or "").strip().partition("\n")[0]
    return "".join(char for char in line if char.isprintable())[:_LONGEST_TEXT]
