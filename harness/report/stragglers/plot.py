"""The picture: scores over time, and who came late to the collectives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hanglab.analyzer.facts.arrival_lag import arrivals
from hanglab.analyzer.facts.assembly import gather
from hanglab.harness.errors import HanglabError, MissingExtra
from hanglab.harness.report.stragglers.history import StragglerHistory
from hanglab.recorder.slowness.thresholds import SCORE_THRESHOLD

#: With more ranks than this only the latest to arrive and the lowest in score have names.
_NAMED = 12


def plot_stragglers(case: Path, history: StragglerHistory | None, target: Path) -> None:
    """Write a PNG.

    Above, for each rank the lowest of its sections' scores, window by window; below,
    how much later than the first of its group it entered each operation.  Raises
    MissingExtra without matplotlib, HanglabError where the file cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra(
            "--plot needs matplotlib, which is not installed.", "pip install 'hanglab[report]'"
        ) from error
    figure = Figure(figsize=(10, 7), layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1)
    _plot_scores(above, history)
    _plot_lag(below, case)
    try:
        figure.savefig(target, format="png", dpi=120)
    except OSError as error:
        raise HanglabError(
            f"{target} cannot be written: {error.strerror}", "Give a file in a folder of yours."
        ) from error


def _plot_scores(axes: Any, history: StragglerHistory | None) -> None:
    axes.set_title("Lowest relative score of the rank's sections")
    axes.set_ylabel("score")
    axes.set_xlabel("seconds since the first window")
    axes.set_ylim(0, 1.05)
    axes.axhline(SCORE_THRESHOLD, color="grey", linewidth=0.8, linestyle=":")
    if history is None:
        axes.text(0.5, 0.5, "no sections were recorded", ha="center", transform=axes.transAxes)
        return
    lines: dict[int, list[tuple[float, float]]] = {}
    for window in history.windows:
        lowest: dict[int, float] = {}
        for section, by_rank in window.work.items():
            # Below a millisecond the score is noise, whatever it says.
            if max(summary.median for summary in by_rank.values()) < 1.0:
                continue
            for rank, score in window.scores(section).items():
                if score is not None:
                    lowest[rank] = min(score, lowest.get(rank, 1.0))
        for rank, score in lowest.items():
            lines.setdefault(rank, []).append((window.at_s, score))
    for rank, points in sorted(lines.items()):
        times, scores = zip(*points, strict=True)
        axes.plot(times, scores, marker=".", label=f"rank {rank}")
    if 0 < len(lines) <= _NAMED:
        axes.legend(loc="lower left", ncols=4, fontsize="small")


def _plot_lag(axes: Any, case: Path) -> None:
    axes.set_title("Arrival lag: how much later than the first of its group")
    axes.set_ylabel("milliseconds")
    axes.set_xlabel("seconds since the first operation compared")
    found = arrivals(gather(case))
    if found is None:
        axes.text(
            0.5, 0.5, "no operations to compare were recorded", ha="center",
            transform=axes.transAxes,
        )  # fmt: skip
        return
    points: dict[int, list[tuple[float, float]]] = {}
    for stretch in found.group_lags:
        lag = (stretch.entered - stretch.entered.min(axis=1, keepdims=True)) / 1e6
        seconds = (stretch.entered.min(axis=1) - found.begin_ns) / 1e9
        for column, rank in enumerate(stretch.members):
            points.setdefault(rank, []).extend(
                zip(seconds.tolist(), lag[:, column].tolist(), strict=True)
            )
    for rank, of_rank in sorted(points.items()):
        times, lags = np.array(sorted(of_rank)).T
        axes.plot(times, lags, ".", markersize=4, label=f"rank {rank}")
    if len(points) <= _NAMED:
        axes.legend(loc="upper left", ncols=4, fontsize="small")
