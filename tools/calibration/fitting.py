"""The table fitted to observations, and how far its probabilities can be trusted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import log

from hanglab.analyzer.calibration import CalibrationRow, CalibrationTable, probability
from tools.calibration.labelled_findings import LabelledFinding

#: Weights that are tried for the prior, in findings.
PRIORS = (2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_SMALLEST = 1e-6


def fit(observations: Sequence[LabelledFinding]) -> CalibrationTable:
    """The table with the prior under which each observation is likeliest, given all others."""

    def loss(prior: float) -> float:
        predicted = left_out(table_of(observations, prior), observations)
        return sum(map(_surprise, predicted, (one.right for one in observations)))

    return table_of(observations, min(PRIORS, key=loss))


def table_of(observations: Sequence[LabelledFinding], prior: float) -> CalibrationTable:
    counts: defaultdict[tuple[str, bool, tuple[str, ...]], list[float]] = defaultdict(list)
    for one in observations:
        counts[one.cause, one.sure, one.evidence].append(one.right)
    rows = [
        CalibrationRow(cause, sure, list(evidence), len(shares), round(sum(shares), 3))
        for (cause, sure, evidence), shares in sorted(counts.items())
    ]
    return CalibrationTable(prior, rows)


def left_out(table: CalibrationTable, observations: Sequence[LabelledFinding]) -> list[float]:
    """Probability that the table gives each observation without itself."""
    answers = []
    for one in observations:
        kind = (one.cause, one.sure, list(one.evidence))
        rows = [
            CalibrationRow(
                row.cause, row.sure, row.evidence, row.findings - 1, row.right - one.right
            )
            if (row.cause, row.sure, row.evidence) == kind
            else row
            for row in table.rows
        ]
        answers.append(probability(CalibrationTable(table.prior, rows), kind, one.strength))
    return answers


def _surprise(predicted: float, right: float) -> float:
    """Negative logarithm of the likelihood; ``right`` may be a share."""
    p = min(max(predicted, _SMALLEST), 1 - _SMALLEST)
    return -(right * log(p) + (1 - right) * log(1 - p))
