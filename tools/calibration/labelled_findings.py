"""Findings held against a known truth, with the strengths that detectors gave them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hanglab.analyzer.calibration import kind_of
from hanglab.analyzer.engine import conclude, gravest
from hanglab.analyzer.facts.assembly import gather_worlds
from hanglab.analyzer.verdict import Status, Verdict
from hanglab.harness.corpus.analysis import analyze_entries
from hanglab.harness.corpus.entries import Truth, entry_names, read_entry


@dataclass(frozen=True)
class LabelledFinding:
    """``right`` is the share of its ranks that are culprits by the cause that it names."""

    cause: str
    sure: bool
    evidence: tuple[str, ...]
    strength: float
    right: float


def observe(corpus: Path, jobs: int) -> Iterator[LabelledFinding]:
    """An observation of each entry whose truth is known and whose verdict is no refusal."""
    names = entry_names(corpus)
    for name, answer in analyze_entries(corpus, names, jobs, uncalibrated):
        truths = read_entry(corpus, name).truth
        if truths is None or "status" not in answer:
            continue
        verdict = msgspec.convert(answer, Verdict)
        if verdict.status is Status.INCONCLUSIVE:
            continue
        yield labelled(verdict, right(verdict, truths))


def labelled(verdict: Verdict, share: float) -> LabelledFinding:
    """The finding that the verdict leads with, or the verdict itself, and how right it is."""
    cause, sure, evidence = kind_of(verdict.findings[0] if verdict.findings else verdict)
    return LabelledFinding(cause, sure, tuple(evidence), verdict.confidence, share)


def uncalibrated(folder: Path) -> Verdict:
    worlds = gather_worlds(folder)
    return gravest(worlds, [conclude(facts) for facts in worlds])


def right(verdict: Verdict, truths: Sequence[Truth]) -> float:
    """Share of the culprits named that are culprits, by the truth that fits best; 0 to 1."""
    shares = [0.0]
    for truth in truths:
        if verdict.status.value != truth.status or truth.cause not in (None, verdict.cause):
            continue
        culprits, named = set(truth.culprits), set(verdict.culprits)
        if culprits == named:
            shares.append(1.0)
        elif culprits < named:
            shares.append(len(culprits) / len(named))
    return max(shares)
