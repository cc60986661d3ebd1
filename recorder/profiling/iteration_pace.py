"""Pace of iterations: a request by iterations would wait for ever where there are none."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.progress import (
    Counters,
    NotProgress,
    read_counters,
    read_progress,
)
from hanglab.recorder.case.records import StackSample
from hanglab.recorder.case.writer import clock, write_bytes
from hanglab.recorder.profiling.registry import Client
from hanglab.recorder.system import procfs
from hanglab.recorder.system.stacks import NoStacks, threads_of

#: Nothing counted for this long is a standstill, in seconds ...
_QUIET_S = 5.0
#: ... as is a main thread that stands at one place in so many looks, this far apart.
_LOOKS = 5
_APART_S = 0.25
#: Seconds that a thread runs in that time if it is only disturbed, not freed.
_RAN_S = 0.0005
#: Further looks at one that runs all the same, and the share of a core that a process at
#: work uses at least, beside what a clock tick may hide.
_MORE_LOOKS = 12
_WORKING = 0.03
_TICK_S = 0.02
#: How long a look is good for, in seconds.
_FRESH_S = 5.0


class Pace(NamedTuple):
    """Iterations that a process has made, and makes in a second; None where nobody counts them."""

    iterations: int | None = None
    per_s: float | None = None


class IterationPace:
    """Looks at processes, and remembers for a while what was seen.

    Looking takes about a second and is done where it holds up nobody.
    """

    def __init__(self, folder_of: Callable[[Client], Path | None]) -> None:
        """``folder_of`` gives a recorded rank's folder in its Case."""
        self._folder_of = folder_of
        self._seen: dict[int, tuple[float, str, bool]] = {}

    def look(self, client: Client, thorough: bool) -> str:
        """The reason to think that the process makes no iterations; "" if there is none."""
        pid = client.identity.pid
        if pid is None:
            return ""
        seen = self._seen.get(pid)
        if seen is not None and time.monotonic() - seen[0] < _FRESH_S / 2:
            if seen[1] or seen[2] or not thorough:
                return seen[1]
        folder = self._folder_of(client)
        reason = by_progress(folder) if folder is not None else None
        if reason is None:
            reason = by_stack(pid, thorough)
        self._seen[pid] = time.monotonic(), reason, thorough
        return reason

    def known(self, client: Client) -> str:
        """Result of the latest look, if it was not long ago."""
        seen = self._seen.get(client.identity.pid or -1)
        return seen[1] if seen is not None and time.monotonic() - seen[0] < _FRESH_S else ""

    def keep_stack(self, client: Client, order: str) -> None:
        """Put the stacks of a recorded rank that stands still beside its trace, in the Case."""
        folder = self._folder_of(client)
        pid = client.identity.pid
        if folder is None or pid is None:
            return
        stat = procfs.stat(pid)
        try:
            threads = threads_of(pid, stopped=stat is not None and stat.state in "TtD")
            sample = StackSample(clock(), pid, "rank", threads, capture=False)
            path = folder / files.TRACES.name / f"{order}.stacks.json"
            write_bytes(path, msgspec.json.encode(sample))
        except (NoStacks, OSError):
            # The trace has them, too.
            return

    def pace(self, client: Client) -> Pace:
        """Iterations of a recorded rank: its optimizer's steps, as Kineto counts them."""
        folder = self._folder_of(client)
        if folder is None:
            return Pace()
        try:
            progress = read_progress((folder / files.PROGRESS.name).read_bytes())
        except (OSError, NotProgress):
            return Pace()
        totals = [total for total in progress.section_totals if total.kind == "update"]
        updates = {total.section for total in totals}
        starts = [e.started_ns for e in progress.section_events if e.section in updates][-20:]
        if len(starts) < 2 or starts[-1] <= starts[0]:
            return Pace()
        per_s = (len(starts) - 1) * 1e9 / (starts[-1] - starts[0])
        return Pace(sum(total.count for total in totals), per_s)


def by_progress(folder: Path) -> str | None:
    """Pace by a recorded rank's own counters; None where they cannot be had."""
    counters = _counters(folder)
    if counters is None:
        return None
    latest = max(counters.operation_event_ns, counters.section_event_ns)
    if not latest:
        return None
    quiet = time.time() - latest / 1e9
    if quiet < _QUIET_S:
        return ""
    # Operations that do not pass the Python boundary show in the sums only.
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        time.sleep(0.1)
        if _counters(folder, counters) != counters:
            return ""
    return f"nothing in it has moved for {quiet:.0f} s"


def by_stack(pid: int, thorough: bool = True) -> str:
    """True if the main thread stands at one line, and gets nowhere from there.

    A rank that spends nearly all its time in one wait is met there at every look,
    too, but comes out of it now and then, and then works.  ``thorough``: look for
    seconds at one that is not plainly at rest; else it counts as moving.
    """
    began, ran, used = time.monotonic(), procfs.wanted_s(pid), procfs.stat(pid)
    place: tuple[tuple[str, str, int], ...] | None = None
    if ran is None or used is None:
        return ""
    for look in range(_LOOKS + (_MORE_LOOKS if thorough else 0)):
        if look:
            # One that moves shows it at once, mostly.
            time.sleep(_APART_S if look > 2 else _APART_S / 4)
        try:
            # Pausing it would make it run.
            threads = threads_of(pid, stopped=True)
        except NoStacks:
            return ""
        main = next((t for t in threads if t.main), None)
        if main is None or not main.frames:
            return ""
        here = tuple((f.file, f.function, f.line) for f in main.frames)
        if place is not None and here != place:
            return ""
        place = here
        now, usage = procfs.wanted_s(pid), procfs.stat(pid)
        if now is None or usage is None:
            return ""
        elapsed = time.monotonic() - began
        spins = now - ran > 0.5 * elapsed
        if look + 1 >= _LOOKS and now - ran < _RAN_S:
            break
        if look >= 2 and not spins and usage.cpu_s - used.cpu_s > _WORKING * elapsed + _TICK_S:
            return ""
    else:
        if not thorough:
            return ""
    if place is None:
        return ""
    file, function, line = place[0]
    return f"its main thread has stood at {file}:{line} ({function}) all along"


def _counters(folder: Path, like: Counters | None = None) -> Counters | None:
    with contextlib.suppress(OSError, NotProgress):
        with open(folder / files.PROGRESS.name, "rb") as file:
            found = read_counters(file.read())
        if like is not None:
            # The recorder's own beat is no movement of the job.
            found = found._replace(heartbeat_mono_ns=like.heartbeat_mono_ns, dumps=like.dumps)
        return found
    return None
