"""Triggers of traces that nobody asked for: something became slow."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hanglab.recorder.case.progress_records import Progress
from hanglab.recorder.case.records import StragglerLine

#: Stretches of one name before one of them can be called slow.
_HISTORY = 10
#: What one must have lost, in nanoseconds, so that jitter of short stretches does not count.
_LEAST_NS = 20_000_000
#: Seconds between two traces that nobody asked for, and how many there are in one job.
INTERVAL_S = 60.0
MOST = 10
#: Bytes of reports that are read at a look.
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class SlowStretch:
    """A stretch that took ``factor`` times as long as its like."""

    name: str
    took_ms: float
    median_ms: float

    def __str__(self) -> str:
        return f"{self.name} took {self.took_ms:.0f} ms, its median is {self.median_ms:.0f} ms"


def slow_stretch(
    progress: Progress, factor: float, since_ns: int, now_ns: int
) -> SlowStretch | None:
    """The first section or step after ``since_ns`` that is ``factor`` times its median; wall times.

    One that has not ended counts for as long as it has lasted.
    """
    past: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for event in progress.section_events:
        past[event.section].append((event.started_ns + event.wall_ns, event.wall_ns))
    for (_, begin), (_, end) in zip(progress.steps, progress.steps[1:], strict=False):
        past["a step"].append((end, end - begin))
    going = [(section.section, section.started_ns) for section in progress.open_sections]
    if progress.steps and progress.phase == "running":
        going.append(("a step", progress.steps[-1][1]))
    for name, events in past.items():
        for index, (ended, wall) in enumerate(events):
            if ended > since_ns and index >= _HISTORY:
                slow = _judge(name, wall, [w for _, w in events[:index]], factor)
                if slow is not None:
                    return slow
    for name, started in going:
        earlier = [wall for _, wall in past.get(name, ())]
        if len(earlier) >= _HISTORY and now_ns > since_ns:
            slow = _judge(name, now_ns - started, earlier, factor)
            if slow is not None:
                return slow
    return None


def _judge(name: str, wall: int, earlier: list[int], factor: float) -> SlowStretch | None:
    median = statistics.median(earlier)
    if wall > factor * median and wall - median > _LEAST_NS:
        return SlowStretch(name, wall / 1e6, median / 1e6)
    return None


class SlownessFlags:
    """Ranks that straggler detectors have called slow since the last look."""

    def __init__(self) -> None:
        #: File to the byte up to which it has been read.
        self._read: dict[Path, int] = {}

    def look(self, file: Path) -> set[int]:
        """Ranks in the reports that a rank's ``straggler.jsonl`` got since; empty if none."""
        try:
            with file.open("rb") as opened:
                opened.seek(self._read.get(file, 0))
                data = opened.read(_MOST_BYTES)
        except OSError:
            return set()
        # A line that is being written is read once it is whole.
        whole = data[: data.rfind(b"\n") + 1]
        self._read[file] = self._read.get(file, 0) + len(whole)
        ranks: set[int] = set()
        for line in whole.splitlines():
            with contextlib.suppress(msgspec.MsgspecError):
                ranks.update(msgspec.json.decode(line, type=StragglerLine).slow)
        return ranks


class Limiter:
    """Lets one trace through in so many seconds, and so many in all."""

    def __init__(self, interval_s: float = INTERVAL_S, most: int = MOST) -> None:
        self._interval_s = interval_s
        self._left = most
        self._last = float("-inf")

    def allow(self, now: float | None = None) -> bool:
        """True if one may be taken at ``now``, monotonic seconds; then it counts as taken."""
        now = time.monotonic() if now is None else now
        if self._left <= 0 or now - self._last < self._interval_s:
            return False
        self._left -= 1
        self._last = now
        return True
