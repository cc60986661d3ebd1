"""The analyzer's front: a folder in, a verdict out."""

from __future__ import annotations

from pathlib import Path

from hanglab.analyzer.arbitration import arbitrate
from hanglab.analyzer.evidence.assembly import gather
from hanglab.analyzer.evidence.differences import differences
from hanglab.analyzer.evidence.model import Evidence as Known
from hanglab.analyzer.heuristics.registry import heuristics
from hanglab.analyzer.remainder import healthy, undecided
from hanglab.analyzer.verdict import Status, Verdict


def analyze(path: Path | str) -> Verdict:
    """Conclude from a Case, or from a bare folder of Flight Recorder dumps.

    Reads nothing but what lies below ``path``.  Raises InputError, with what to
    do next, if nothing there can be analysed.
    """
    return conclude(gather(Path(path)))


def conclude(known: Known) -> Verdict:
    """The verdict on evidence already gathered."""
    proposals = [proposal for heuristic in heuristics() for proposal in heuristic(known)]
    _, verdict = arbitrate(known, proposals)
    verdict = verdict or healthy(known) or undecided(known)
    if verdict.status is not Status.HEALTHY:
        verdict.evidence = [*verdict.evidence, *differences(known.ranks)]
    return verdict
