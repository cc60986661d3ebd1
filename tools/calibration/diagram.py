"""Reliability diagram: probabilities that were given, and how often they were right.

Bröcker and Smith, Increasing the reliability of reliability diagrams, Weather and Forecasting
22 (2007).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from hanglab.harness.evaluation.reliability import Bin
from hanglab.harness.report.rates import wilson


def draw(series: Mapping[str, Sequence[Bin]], picture: Path) -> None:
    """Write an SVG with a line for each series of bins, with intervals of 95 % (Wilson's)."""
    figure = Figure(figsize=(5, 5), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot(xlabel="probability that was given", ylabel="share that was right")
    axes.plot([0, 1], [0, 1], color="0.6", linestyle=":", label="perfect")
    for name, bins in series.items():
        low, high = zip(*(wilson(one.right * one.count, one.count) for one in bins), strict=True)
        right = [one.right for one in bins]
        below = [max(0.0, r - at) for r, at in zip(right, low, strict=True)]
        above = [max(0.0, at - r) for r, at in zip(right, high, strict=True)]
        given = [one.predicted for one in bins]
        axes.errorbar(given, right, yerr=(below, above), marker="o", capsize=3, label=name)
    axes.legend(loc="upper left")
    axes.set(xlim=(0, 1.02), ylim=(0, 1.02))
    # Without a date and random names, so that the same figures give the same file; text as text.
    with rc_context({"svg.hashsalt": "hanglab", "svg.fonttype": "none"}):
        figure.savefig(picture, format="svg", metadata={"Date": None})
