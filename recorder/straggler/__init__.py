"""Straggler detection, with the interface of NVIDIA's resiliency extension.

::

    from hanglab.recorder.straggler import Detector

    Detector.initialize(report_time_interval=60)
    for batch in loader:
        with Detector.detection_section("forward"):
            ...
        report = Detector.generate_report_if_interval_elapsed()
        if report is not None:
            print(report.identify_stragglers())
    Detector.shutdown()

docs/stragglers.md says what the scores mean, and what differs.
"""

from __future__ import annotations

from hanglab.recorder.slowness.statistics import Statistic
from hanglab.recorder.straggler.callables import CallableId
from hanglab.recorder.straggler.detector import Detector
from hanglab.recorder.straggler.reporting import Missing, Report, SlowSection, StragglerId

__all__ = [
    "CallableId",
    "Detector",
    "Missing",
    "Report",
    "SlowSection",
    "Statistic",
    "StragglerId",
]
