"""Measurements of this rank, its sections, kernels and input, made into windows."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from hanglab.recorder.rank.wait_timer import COMMUNICATION, INPUT, SINCE, WAIT_TIMER, WHAT
from hanglab.recorder.slowness import InputWait, Summary, kernel_score
from hanglab.recorder.straggler.kernels import KernelProfiler
from hanglab.recorder.straggler.loaders import LoaderTimes
from hanglab.recorder.straggler.run_queue_delay import RunQueueDelay
from hanglab.recorder.straggler.sections import Kind, SectionEntries
from hanglab.recorder.straggler.window import SectionWindow, TimingWindow, WaitState

if TYPE_CHECKING:
    from hanglab.recorder.straggler.table import BestWindows


class Measurements:
    """The sections of one detector and what they came to, window by window."""

    def __init__(self, node: str, kernel_interval: int) -> None:
        self.sections: dict[str, SectionEntries] = {}
        self._node = node
        self._declaring = threading.Lock()
        self._past: BestWindows | None = None
        self._best_kernels: dict[str, float] = {}
        self._began = time.monotonic_ns()
        self._input_before = 0
        self._kernels = KernelProfiler(kernel_interval)
        self._loaders = LoaderTimes()
        self._processor = RunQueueDelay()
        #: Entries, and open ones, when the thread last looked, and when that last changed.
        self._moves = (-1, 0)
        self._moved = time.monotonic()
        self._looked = 0.0
        WAIT_TIMER.acquire()

    def close(self) -> None:
        WAIT_TIMER.release()

    def declare(self, name: str, location: str, profile_cuda: bool, kind: Kind) -> SectionEntries:
        """The section of that name, made at its first mention."""
        with self._declaring:
            section = self.sections.get(name)
            if section is None:
                section = SectionEntries(name, location, profile_cuda, kind, self._kernels)
                self.sections[name] = section
            return section

    # Windows.

    def take(self, number: int, warnings: Sequence[str], keep: bool) -> TimingWindow:
        """The window that ends now; the next one begins, unless the timings are to be kept."""
        now = time.monotonic_ns()
        span_ms = max(1e-6, (now - self._began) / 1e6)
        kernels = self._kernels.take(keep)
        waited = sum(record[INPUT] for record in list(WAIT_TIMER.by_thread.values()))
        share = min(1.0, (waited - self._input_before) / 1e6 / span_ms)
        window = TimingWindow(
            number=number,
            rank=0,
            node=self._node,
            span_ms=span_ms,
            sections=self._sum_up(keep),
            kernels=kernels,
            gpu_individual=self._individual_gpu_score(kernels, keep),
            input=InputWait(max(0.0, share), self._loaders.busy(span_ms, keep)),
            run_queue=None if keep else self._processor.take(),
            warnings=tuple(warnings),
        )
        if not keep:
            self._began = now
            self._input_before = waited
        return window

    def _sum_up(self, keep: bool) -> Mapping[str, SectionWindow]:
        # Only now: it imports numpy, which has no place in the import of a recorder.
        from hanglab.recorder.straggler.section_totals import sum_up
        from hanglab.recorder.straggler.table import BestWindows

        if self._past is None:
            self._past = BestWindows()
        return sum_up(list(self.sections.values()), self._past, keep)

    def _individual_gpu_score(self, kernels: dict[str, Summary], keep: bool) -> float | None:
        best = dict(self._best_kernels)
        for name, kernel in kernels.items():
            best[name] = min(best.get(name, kernel.median), kernel.median)
        if not keep:
            self._best_kernels = best
        return kernel_score(kernels, best)

    def warnings(self) -> Iterator[str]:
        """Sections that were declared and never entered, and timings that could not be had."""
        for name, section in list(self.sections.items()):
            if not section.entered:
                yield (
                    f"section {name!r} was declared but never entered ({section.location}): is "
                    "its wrapper used?"
                )
            if section.foreign:
                yield f"section {name!r} was left on another thread than it was entered on"
        if self._kernels.problem:
            yield self._kernels.problem

    # WaitState still.

    def quiet_s(self) -> float:
        """Seconds for which no section has been entered or left, as far as seen."""
        sections = list(self.sections.values())
        moves = sum(section.entered for section in sections), sum(len(s.open) for s in sections)
        now = time.monotonic()
        if moves != self._moves:
            self._moves, self._moved, self._looked = moves, now, 0.0
        return now - self._moved

    def note_look(self) -> bool:
        """True if it is time for another report of a job that stands: after 1, 2, 4, ... times
        the quiet that made the first."""
        quiet = time.monotonic() - self._moved
        if self._looked and quiet < 2 * self._looked:
            return False
        self._looked = quiet
        return True

    def standing(self, windows: int, quiet_s: float) -> WaitState:
        """Place where the rank stands; its number is filled in by whoever sends it."""
        now = time.monotonic_ns()
        sections = list(self.sections.values())
        opened = sorted((one.began, s.name) for s in sections for one in list(s.open.values()))
        communicating = [one.began for s in sections if s.hidden for one in list(s.open.values())]
        reading: list[int] = []
        for record in list(WAIT_TIMER.by_thread.values()):
            if record[SINCE]:
                (communicating if record[WHAT] == COMMUNICATION else reading).append(record[SINCE])
        return WaitState(
            rank=0,
            node=self._node,
            windows=windows,
            quiet_s=quiet_s,
            open=tuple((name, (now - started) / 1e9) for started, name in opened),
            communicating_s=(now - max(communicating)) / 1e9 if communicating else None,
            reading_s=(now - min(reading)) / 1e9 if reading else None,
        )
