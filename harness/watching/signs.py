"""Signs of life of a rank, as its host shows them, and what of them is movement.

Hung ranks are not silent: trackers report, stores are asked, threads that wait look at
their watch.  So a sign is held against the rank's own use: what falls far below that is
talk, and no movement.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

#: Seconds over which bytes are added up: trackers report every 10 to 15 s.
WINDOW_S = 10.0
#: Share of a rank's usual rate from which on bytes are movement ...
_SHARE = 0.05
#: ... the bytes a second that always are, those of a slow download ...
_ENOUGH = 16 * 1024 / WINDOW_S
#: ... and those that never are, save between ranks: trackers report a few KiB every 15 s.
_TALK = 5 * 1024 / WINDOW_S
#: Seconds after which what was usual is forgotten to a third.
_MEMORY_S = 300.0
#: Share of a core that a rank uses, or waits for, from which on it computes: threads that wake
#: ten times a second to look whether to go on use 0.1 to 1 %.
BUSY_SHARE = 0.02


class Signs(NamedTuple):
    """Readings of one rank at one moment; all but ``state`` grow from its start."""

    #: A number that changes with each step, section and operation; None without a recorder.
    progress: int | None
    #: Bytes read and written by system calls, by it and the processes below.
    io_bytes: int
    #: Payload on its connections to the job's other ranks on this host.
    peer_bytes: int
    #: Payload on its connections to all others.
    other_bytes: int
    #: Seconds that its main thread and the processes below have run or waited for a processor.
    wanted_s: float
    #: State of its process, as in /proc: R, S, D, T ...
    state: str = "S"


class LookResult(NamedTuple):
    """A rank since the last look: it moved, or only computed, or neither; or was stopped."""

    moved: bool
    busy: bool
    stopped: bool


@dataclass
class _ByteRate:
    """Bytes of one kind, of late and usually."""

    total: int
    #: Bytes a second below which they are talk, however few are usual.
    least: float = 0.0
    usual: float = 0.0

    def __post_init__(self) -> None:
        self._late: deque[tuple[float, int]] = deque()

    def moved(self, at_s: float, total: int) -> bool:
        grown = max(0, total - self.total)
        self.total = total
        if grown:
            self._late.append((at_s, grown))
        while self._late and self._late[0][0] <= at_s - WINDOW_S:
            self._late.popleft()
        if not grown:
            return False
        of_late = sum(size for _, size in self._late) / WINDOW_S
        return of_late >= min(max(_SHARE * self.usual, self.least), _ENOUGH)

    def learn(self, seconds: float, grown: int) -> None:
        if seconds <= 0:
            return
        share = min(1.0, seconds / _MEMORY_S)
        self.usual += share * (grown / seconds - self.usual)


class RankActivity:
    """Judge of one rank's signs, look by look."""

    def __init__(self, signs: Signs, at_s: float) -> None:
        self._signs = signs
        self._at_s = at_s
        self._moved_at_s = at_s
        self._rates = [
            _ByteRate(signs.io_bytes, _TALK),
            _ByteRate(signs.peer_bytes),
            _ByteRate(signs.other_bytes, _TALK),
        ]
        self._at_move = [rate.total for rate in self._rates]

    def look(self, signs: Signs, at_s: float) -> LookResult:
        """LookResult since the last look; ``at_s`` as for :class:`Pauses`."""
        before, self._signs = self._signs, signs
        seconds = max(1e-9, at_s - self._at_s)
        self._at_s = at_s
        totals = (signs.io_bytes, signs.peer_bytes, signs.other_bytes)
        flowed = [rate.moved(at_s, total) for rate, total in zip(self._rates, totals, strict=True)]
        moved = any(flowed) or signs.progress != before.progress
        if moved:
            # What is usual is learned of times that end in movement: a hang teaches nothing.
            since = at_s - self._moved_at_s
            for rate, then in zip(self._rates, self._at_move, strict=True):
                rate.learn(since, max(0, rate.total - then))
            self._at_move = [rate.total for rate in self._rates]
            self._moved_at_s = at_s
        busy = (signs.wanted_s - before.wanted_s) / seconds >= BUSY_SHARE
        return LookResult(moved, busy, signs.state in "Tt")
