"""Straggler detection around a loop that is written by hand.

::

    with watch_stragglers(report_time_interval=60, stop_if_detected=True) as watch:
        for batch in loader:
            with watch.section("forward"):
                loss = model(batch)
            ...
            if watch.step():
                break
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType

from hanglab.recorder.straggler.detector import Detector
from hanglab.recorder.straggler.integration import StragglerWatch, Thresholds

__all__ = ["Thresholds", "watch_stragglers"]


class watch_stragglers(StragglerWatch):
    """Context manager: detection from its start to its end; arguments as of the base class."""

    def __enter__(self) -> watch_stragglers:
        self.start()
        return self

    def __exit__(
        self,
        type_: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def section(self, name: str) -> AbstractContextManager[None]:
        """A stretch of the rank's own work, timed."""
        return Detector.detection_section(name)
