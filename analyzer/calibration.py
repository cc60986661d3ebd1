"""Probability that a finding is right, by its cause and the kinds of evidence that it rests on.

Detectors give a finding a strength, which sorts proposals.  What people read is a probability,
fitted by ``tools.calibration`` on the corpus and on random trials: the share of findings of this
cause, on such evidence, that named the right cause and ranks, drawn towards the share among all
findings of the cause, and that towards the strength, as far as few have been seen (empirical
Bayes with a Beta prior; Gelman et al., Bayesian Data Analysis, 3rd ed., section 5.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec

from hanglab.analyzer.verdict import Finding, Status, Verdict
from hanglab.recorder.case.decoders import decoder_of

#: Largest probability: the jobs that the table was fitted on are hanglab's own, not a customer's.
LARGEST = 0.99

TABLE = Path(__file__).with_name("calibration.json")

#: Up to this strength (a probability) a detector names candidates, and is another kind of finding.
CANDIDATES = 0.6

#: Up to this strength nothing tells which of the culprits it is, and it is at most half of them,
#: whatever other findings of the cause were: more would be the majority.
TIED = 0.5


class CalibrationRow(msgspec.Struct, frozen=True):
    """Findings of one kind that were held against the truth.

    ``right`` counts a finding that names several candidates by the share of culprits in them.
    """

    cause: str
    sure: bool
    evidence: list[str]
    findings: int
    right: float


class CalibrationTable(msgspec.Struct, frozen=True):
    """Rows, and the weight of a prior in findings."""

    prior: float
    rows: list[CalibrationRow]


Kind = tuple[str, bool, list[str]]


def probability(table: CalibrationTable, kind: Kind, strength: float) -> float:
    """Probability, 0 to 1, that a rank drawn from a finding's culprits is one, by its cause."""
    of_cause = [row for row in table.rows if (row.cause, row.sure) == kind[:2]]
    of_kind = [row for row in of_cause if row.evidence == kind[2]]
    return _share(of_kind, table.prior, _share(of_cause, table.prior, strength))


def _share(rows: Sequence[CalibrationRow], weight: float, prior: float) -> float:
    """Share of right findings in the rows, drawn towards ``prior``."""
    findings = sum(row.findings for row in rows)
    return (sum(row.right for row in rows) + weight * prior) / (findings + weight)


def kind_of(finding: Finding | Verdict) -> Kind:
    """Cause (or status without one), whether it is more than candidates, kinds of evidence."""
    cause = finding.cause.value if finding.cause is not None else finding.status.value
    evidence = sorted({one.source for one in finding.evidence})
    return cause, finding.confidence > CANDIDATES, evidence


@cache
def _table() -> CalibrationTable:
    table: CalibrationTable = decoder_of(CalibrationTable).decode(TABLE.read_bytes())
    return table


def calibrate(verdict: Verdict) -> Verdict:
    """Give the verdict and its findings their probabilities in place of their strengths.

    A verdict is as probable as the finding that it leads with, whatever evidence it adds.
    """
    for finding in verdict.findings:
        finding.confidence = _probability_of(finding)
    leading = verdict.findings[0].confidence if verdict.findings else _probability_of(verdict)
    verdict.confidence = leading
    return verdict


def _probability_of(finding: Finding | Verdict) -> float:
    if finding.status is Status.INCONCLUSIVE:
        return finding.confidence
    tied = finding.confidence <= TIED and len(finding.culprits) > 1
    largest = TIED if tied else LARGEST
    return round(min(largest, probability(_table(), kind_of(finding), finding.confidence)), 3)
