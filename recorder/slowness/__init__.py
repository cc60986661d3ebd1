"""Arithmetic of slowness: summaries of timings, scores, and who is slower than whom.

Windows of sections and waits for input are what ranks judge themselves by
(``slower_ranks``, ``input_waits``); windows of whole jobs are what a Case is judged by
(``job_window``, ``section_costs``, ``batch_waits``), which nothing here imports.  Both go by
one set of ``thresholds``.  Standard library only, but for ``column_summaries``, which sums up
many windows at once and which nothing here imports either.  Names say the unit, milliseconds or
nanoseconds; what is not known is None, never NaN.
"""

from __future__ import annotations

from hanglab.recorder.slowness.input_waits import InputWait, Starvation, judge_input
from hanglab.recorder.slowness.kernel_scores import common_medians, kernel_score
from hanglab.recorder.slowness.ratios import (
    individual_scores,
    ratio,
    relative_scores,
)
from hanglab.recorder.slowness.slower_ranks import (
    RunQueue,
    Slowness,
    SlownessKind,
    slow_ranks,
    slow_without_delay,
    slower_than,
)
from hanglab.recorder.slowness.statistics import Statistic, Summary, median, percentile, summarize

__all__ = [
    "RunQueue",
    "SlownessKind",
    "InputWait",
    "Slowness",
    "Starvation",
    "Statistic",
    "Summary",
    "slow_without_delay",
    "common_medians",
    "slow_ranks",
    "individual_scores",
    "judge_input",
    "kernel_score",
    "median",
    "percentile",
    "ratio",
    "relative_scores",
    "slower_than",
    "summarize",
]
