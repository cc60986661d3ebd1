"""The detector: times sections, exchanges windows with the other ranks, makes reports."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

from hanglab.recorder.slowness.thresholds import FEWEST_FOR_MEDIAN
from hanglab.recorder.straggler import evidence
from hanglab.recorder.straggler.callables import CallableId, WrappedCallable
from hanglab.recorder.straggler.class_or_instance import on_class_too, value_on_class_too
from hanglab.recorder.straggler.interval import IntervalTracker
from hanglab.recorder.straggler.measurement import Measurements
from hanglab.recorder.straggler.peers import Peers
from hanglab.recorder.straggler.reporting import Report
from hanglab.recorder.straggler.scoring import INDIVIDUAL, RELATIVE, make_report
from hanglab.recorder.straggler.sections import Entry, Kind, SectionEntries
from hanglab.recorder.straggler.window import WaitState
from hanglab.recorder.system.host_name import host_name

log = logging.getLogger("hanglab.straggler")

_NOTHING = nullcontext()

#: A job counts as standing after this many seconds without a section at the earliest.
SHORTEST_QUIET_S = 2.0
#: Seconds that the ranks of a standing job get to say where each of them stands.
SETTLING_S = 1.0
#: Seconds more for those that have not by then: on a crowded host a rank that only waits for others
#: may say so late, and would be named as one that the others wait for.  Each looks twice a second.
LATE_WORD_S = 5.0


class Detector:
    """Finds ranks that are slower than the others, or than they used to be.

    Used as an object, any number in one process, or by its class, like NVIDIA's
    detector: then ``Detector.initialize(...)`` makes the one that all calls on the
    class go to.  Nothing here raises into the job; what is wrong is logged, as
    logger ``hanglab.straggler``, and stands in the report's warnings.

    Args:
        scores_to_compute: ``"all"``, or any of ``"relative_perf_scores"`` and
            ``"individual_perf_scores"``.
        gather_on_rank0: True: rank 0's reports hold every rank, the others get none.
            False: each rank reports on itself; with individual scores alone the
            ranks exchange nothing.
        profiling_interval: Time every so-many-th entry of a section.
        report_time_interval: Seconds between reports of
            ``generate_report_if_interval_elapsed``; also the time without any section
            after which the detector reports by itself.
        node_name: Name of the node in reports; the host's unless given.
        patience_s: How long a report waits for the windows of other ranks, at most.
        folder: Folder that all ranks share, to exchange windows through; the
            default group's store unless given.
        kernel_interval: Profile the kernels of every so-many-th timed entry that asks
            for it; 0 for none.
        agree_by_collective: Tell the number of steps between reports by one broadcast of the
            default group, after the step ``IntervalTracker.FIRST_ITER``, and not over the
            store: for loops that communicate where a report is due, and so must know it at
            the same step.
        name: Tells detectors apart that ranks make in different order.
    """

    _shared: ClassVar[Detector | None] = None
    _made: ClassVar[int] = 0

    def __init__(
        self,
        scores_to_compute: Sequence[str] | str = "all",
        gather_on_rank0: bool = True,
        profiling_interval: int = 1,
        report_time_interval: float = 60,
        node_name: str | None = None,
        *,
        patience_s: float = 1.0,
        folder: str | os.PathLike[str] | None = None,
        kernel_interval: int = 64,
        agree_by_collective: bool = False,
        name: str | None = None,
    ) -> None:
        asked = (RELATIVE, INDIVIDUAL) if str(scores_to_compute) == "all" else scores_to_compute
        self._scores = frozenset([asked] if isinstance(asked, str) else asked)
        self._gather = gather_on_rank0
        self._every = max(1, int(profiling_interval))
        self._patience = patience_s
        self._wrapped: list[WrappedCallable] = []
        self._complaints: set[str] = set()
        self._reporting = threading.Lock()
        #: Held while a report of a job that stands is being made.
        self._standing_report = threading.Lock()
        self._latest: Report | None = None
        self._number = 0
        Detector._made += 1
        self._measuring = Measurements(node_name or host_name(), kernel_interval)
        self._peers = Peers(
            f"hanglab/straggler/{name or Detector._made}/",
            folder,
            exchanging=gather_on_rank0 or RELATIVE in self._scores,
            gathering=gather_on_rank0,
            agreeing=agree_by_collective,
            beat=self._look,
        )
        # A report on fewer entries than a median takes would compare nothing.
        least = self._every * FEWEST_FOR_MEDIAN
        self._interval = IntervalTracker(report_time_interval, least, self._peers.agree_on_interval)
        self._live = True

    @classmethod
    def initialize(
        cls,
        scores_to_compute: Sequence[str] | str = "all",
        gather_on_rank0: bool = True,
        profiling_interval: int = 1,
        report_time_interval: float = 60,
        node_name: str | None = None,
        **more: Any,
    ) -> None:
        """Make the detector that calls on the class go to; arguments as of the class.

        Once there is one already, it is shut down first, with a warning.
        """
        if cls._shared is not None and cls._shared._live:
            log.warning("The straggler detector was initialized twice; it begins anew.")
            cls._shared._shut_down()
        cls._shared = cls(
            scores_to_compute,
            gather_on_rank0,
            profiling_interval,
            report_time_interval,
            node_name,
            **more,
        )

    @classmethod
    def shared(cls) -> Detector:
        """The detector of calls on the class; one that does nothing before ``initialize``."""
        if cls._shared is None:
            dormant = cls(gather_on_rank0=False, scores_to_compute=[INDIVIDUAL])
            dormant._shut_down()
            cls._shared = dormant
        return cls._shared

    # Sections.

    def _detection_section(
        self, name: str | None = None, profile_cuda: bool = True, *, kind: Kind = "work"
    ) -> Entry | AbstractContextManager[None]:
        """Context manager around a stretch of the rank's work; decorates functions too.

        Without a name, its place in the code is the name.  ``profile_cuda`` asks for
        device times and kernels.  ``kind="input"`` says that the section waits for
        input (what DataLoader's iterators do is known to be that anyway).
        """
        section = self._measuring.sections.get(name)  # type: ignore[arg-type]
        if section is None:
            if not self._live:
                self._complain(
                    "A section was entered although the straggler detector is not running; call "
                    "Detector.initialize() first."
                )
                return _NOTHING
            section = self._declare(name, sys._getframe(1), profile_cuda, kind)
        return Entry(section, self._every)

    def _declare(
        self, name: str | None, frame: Any, profile_cuda: bool, kind: Kind
    ) -> SectionEntries:
        location = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        return self._measuring.declare(str(name or location), location, profile_cuda, kind)

    def _wrap_callables(
        self, callable_ids: Sequence[CallableId], profile_cuda: bool = True
    ) -> None:
        """Make every call of these an entry of the section ``str(callable_id)``."""
        if not self._live:
            self._complain("Callables were given to a straggler detector that is not running.")
            return
        for callable_id in callable_ids:
            name = str(callable_id)
            section = self._measuring.declare(name, name, profile_cuda, "work")
            try:
                self._wrapped.append(WrappedCallable(callable_id, _entering(section, self._every)))
            except Exception as error:
                self._complain(f"{name} cannot be timed: {error}")

    def _restore_original_callables(self) -> None:
        """Undo ``wrap_callables``."""
        while self._wrapped:
            try:
                self._wrapped.pop().restore()
            except Exception as error:
                self._complain(f"A callable cannot be restored: {error}")

    # Reports.

    def _generate_report(self) -> Report | None:
        """Report on the time since the last one, and begin a new window.

        Every rank calls it.  None on ranks other than 0 with ``gather_on_rank0``.
        """
        if not self._live:
            self._complain("A report was asked of a straggler detector that is not running.")
            return None
        try:
            with self._reporting:
                return self._report()
        except Exception as error:
            self._complain(f"The straggler report failed: {type(error).__name__}: {error}")
            return None

    def _generate_report_if_interval_elapsed(self) -> Report | None:
        """Call it at every step: a report about every ``report_time_interval``, else None."""
        if not self._live:
            return None
        self._interval.iter_increase()
        return self._generate_report() if self._interval.is_interval_elapsed() else None

    def _is_interval_elapsed(self) -> bool:
        """True if a report was due at the latest ``generate_report_if_interval_elapsed``.

        The same on all ranks that have been told the interval: code that communicates where it
        is True needs ``agree_by_collective``, as a rank may be told late over the store.
        """
        return self._interval.is_interval_elapsed()

    def _report(self, standing: WaitState | None = None) -> Report | None:
        """Report; with ``standing``, of a job that stands, whose window goes on."""
        started = time.perf_counter()
        unasked = standing is not None
        if not unasked:
            self._number += 1
        window = self._measuring.take(self._number, self._warnings(), keep=unasked)
        window = self._peers.publish(window, unasked)
        if not unasked:
            evidence.write_window(window)
        if self._gather and window.rank != 0:
            return None
        if standing is not None:
            peers = self._peers.collect_standings(standing)
        else:
            peers = self._peers.collect_windows(window, self._patience)
        report = make_report(
            window,
            peers,
            scores=self._scores,
            gathered=self._gather,
            unasked=unasked,
            warnings=(*window.warnings, *self._peers.warnings()),
            elapsed_ms=(time.perf_counter() - started) * 1e3,
        )
        self._latest = report
        # Who reads the sentence finds what it is about in the Case.
        evidence.write_report(report)
        self._log_missing(report)
        return report

    def _log_missing(self, report: Report) -> None:
        for missing in report.missing.values():
            if report.unasked or f"{missing.rank} is missing" not in self._complaints:
                self._complaints.add(f"{missing.rank} is missing")
                log.warning("straggler report %d: %s", report.number, missing)
        for rank in set(report.windows) - set(report.missing):
            self._complaints.discard(f"{rank} is missing")

    def _warnings(self) -> tuple[str, ...]:
        """Problems of the detector itself: silence would look like health."""
        told = list(self._measuring.warnings())
        for wrapped in self._wrapped:
            if not wrapped.in_place():
                told.append(
                    f"calls of {wrapped.callable_id} are no longer timed: something else has "
                    "been put in its place"
                )
        for text in told:
            self._complain(text)
        return tuple(told)

    def _look(self) -> None:
        """Called by the detector's own thread: has the job come to stand?"""
        if self._standing_still():
            # Reports wait for what that thread brings.
            threading.Thread(
                target=self._report_standing, name="hanglab-straggler-report", daemon=True
            ).start()

    def _standing_still(self) -> bool:
        measuring = self._measuring
        return (
            self._live
            and measuring.quiet_s() >= max(self._interval.time_interval, SHORTEST_QUIET_S)
            and bool(measuring.sections)
            and measuring.note_look()
        )

    def _report_standing(self) -> None:
        """Report where the job itself no longer can: say where this rank stands, and, on rank
        0, who is missing."""
        if not self._standing_report.acquire(blocking=False):
            return
        try:
            quiet = self._measuring.quiet_s()
            standing = self._measuring.standing(self._number, quiet)
            self._peers.publish_standing(standing)
            time.sleep(SETTLING_S)
            # Without the lock: if the job goes on meanwhile, its own report waits for nobody.
            self._peers.await_standings(LATE_WORD_S)
            with self._reporting:
                if self._measuring.quiet_s() > quiet:
                    self._report(standing)
        except Exception as error:
            self._complain(f"The straggler report failed: {type(error).__name__}: {error}")
        finally:
            self._standing_report.release()

    # The end.

    def _shut_down(self) -> None:
        """Stop timing, put wrapped callables back, end the detector's thread."""
        if not self._live:
            return
        self._live = False
        self._restore_original_callables()
        self._peers.close()
        self._measuring.close()

    def _complain(self, text: str) -> None:
        """Log it, once."""
        if text not in self._complaints:
            self._complaints.add(text)
            log.warning("%s", text)

    #: What users call, on an object or on the class.
    detection_section = on_class_too(_detection_section)
    wrap_callables = on_class_too(_wrap_callables)
    restore_original_callables = on_class_too(_restore_original_callables)
    generate_report = on_class_too(_generate_report)
    generate_report_if_interval_elapsed = on_class_too(_generate_report_if_interval_elapsed)
    is_interval_elapsed = on_class_too(_is_interval_elapsed)
    shutdown = on_class_too(_shut_down)

    @value_on_class_too
    def initialized(self) -> bool:
        """True from ``initialize`` to ``shutdown``."""
        return self._live

    @value_on_class_too
    def latest_report(self) -> Report | None:
        """The latest report, also one that nobody asked for because the job stands still."""
        return self._latest

    @value_on_class_too
    def report_interval_tracker(self) -> IntervalTracker:
        """Counts steps for ``generate_report_if_interval_elapsed``."""
        return self._interval

    @value_on_class_too
    def custom_sections(self) -> dict[str, SectionEntries]:
        """Sections by name."""
        return self._measuring.sections


def _entering(section: SectionEntries, every: int) -> Any:
    return lambda: Entry(section, every)
