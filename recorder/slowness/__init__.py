"""Arithmetic of slowness: summaries of timings, scores, and who is slower than whom.

Standard library only, but for ``columns``, which sums up many windows at once and which
nothing here imports.  What ranks compute about themselves and what the
analyzer computes from their evidence is the same arithmetic.  All times are
milliseconds; what is not known is None, never NaN.
"""

from __future__ import annotations

from hanglab.recorder.slowness.input_waits import InputWait, Starvation, judge_input
from hanglab.recorder.slowness.kernel_scores import common_medians, kernel_score
from hanglab.recorder.slowness.ratios import (
    RESOLUTION_MS,
    individual_scores,
    ratio,
    relative_scores,
)
from hanglab.recorder.slowness.slower_ranks import (
    Slowness,
    SlownessKind,
    beyond_waits,
    slow_ranks,
    slower_than,
)
from hanglab.recorder.slowness.statistics import Statistic, Summary, median, percentile, summarize

__all__ = [
    "RESOLUTION_MS",
    "SlownessKind",
    "InputWait",
    "Slowness",
    "Starvation",
    "Statistic",
    "Summary",
    "beyond_waits",
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
