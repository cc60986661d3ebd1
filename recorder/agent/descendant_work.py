"""Processor time of the processes below a rank while it waits for them.

A rank that has started a compiler, or waits for its loader's workers, uses no
processor itself.  Processor time is no movement, of a child's as little as of
its own, but a reason for as much patience.
"""

from __future__ import annotations

from collections.abc import Sequence

from hanglab.recorder.system import procfs


class DescendantWork:
    """Processor time of the processes below the process ``pid``, since it rests."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        #: Monotonic seconds, and processor seconds by then, as the rest began.
        self._at_rest: tuple[float, float] | None = None

    def forget(self) -> None:
        """The rest is over."""
        self._at_rest = None

    def begin(self, below: Sequence[int], now: float) -> None:
        """A rest begins, unless it has; ``below`` are all processes below, as just looked up."""
        if self._at_rest is None:
            self._at_rest = now, self._used(below)

    def share(self, below: Sequence[int], now: float) -> float:
        """Cores that they have used, or waited for, since; ``now`` is monotonic seconds."""
        if self._at_rest is None or now <= self._at_rest[0]:
            return 0.0
        since, before = self._at_rest
        return max(0.0, self._used(below) - before) / (now - since)

    def _used(self, below: Sequence[int]) -> float:
        """Work of descendants; those that have ended count in who has waited for them."""
        rank = procfs.stat(self._pid)
        used = rank.reaped_s if rank is not None else 0.0
        for pid in below:
            stat = procfs.stat(pid)
            if stat is not None:
                # On a crowded host it gets only a part of the core that it would use.
                used += max(stat.cpu_s, procfs.wanted_s(pid) or 0.0) + stat.reaped_s
        return used
