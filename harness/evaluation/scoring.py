"""The score of one answer: what of it is right, and whom it accuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

import msgspec

from hanglab.harness.corpus.comparison import UNSURE, Agreement, compare_with_truth
from hanglab.harness.corpus.entries import Truth
from hanglab.harness.evaluation.answers import Accusation, CaseAnswer

HEALTHY = "healthy"


class Score(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One answer against the truth that fits it best."""

    #: The truth in a word: its cause, or its status where any cause is right.
    truth: str
    agreement: Agreement
    #: Status and cause are right, whoever is accused of it.
    cause_right: bool = False
    #: Cause and culprits are.
    right: bool = False
    #: Ranks that are accused and did nothing.
    innocents: list[int] = []
    #: The same where the answer names candidates, and says so.
    candidates: list[int] = []
    #: None where the truth knows of no line.
    line_right: bool | None = None
    #: Share of the culprits named that are some, of a conclusive answer by the right cause.
    share: float | None = None


def score(answer: CaseAnswer, truths: Sequence[Truth]) -> Score:
    """Hold an answer against what is known; any of the truths is right."""
    known = _best(answer, truths)
    if answer.crash is not None:
        agreement = Agreement.DIFFERS
    else:
        agreement = compare_with_truth(_as_verdict(answer), list(truths))
    innocents, candidates = _accused(answer, truths)
    return Score(
        truth=known.cause or known.status,
        agreement=agreement,
        cause_right=_cause_fits(answer, known),
        right=agreement is Agreement.AGREES,
        innocents=sorted(innocents),
        candidates=sorted(candidates - innocents),
        line_right=_line_fits(answer, known) if known.lines else None,
        share=max(_share(answer, truth) for truth in truths) if answer.conclusive else None,
    )


def _as_verdict(answer: CaseAnswer) -> dict[str, object]:
    if answer.refused is not None:
        return {"error": answer.refused}
    return {
        "status": answer.status,
        "cause": answer.cause,
        "culprits": answer.culprits,
        "confidence": answer.confidence,
    }


def _best(answer: CaseAnswer, truths: Sequence[Truth]) -> Truth:
    """The truth that the answer is nearest to; without any resemblance the first."""
    return max(
        truths,
        key=lambda truth: (
            _cause_fits(answer, truth),
            sorted(truth.culprits) == answer.culprits,
            -truths.index(truth),
        ),
    )


def _cause_fits(answer: CaseAnswer, truth: Truth) -> bool:
    return answer.status == truth.status and truth.cause in (None, answer.cause)


def _accused(answer: CaseAnswer, truths: Sequence[Truth]) -> tuple[set[int], set[int]]:
    """Ranks that are accused without a fault, of which those among candidates stand apart."""
    guilty = {rank for truth in truths for rank in truth.culprits}
    innocents: set[int] = set()
    candidates: set[int] = set()
    leading = Accusation(answer.status or "", answer.cause, answer.culprits, answer.confidence)
    for finding in answer.findings or [leading]:
        named = set(finding.culprits)
        # Who names all that could be meant, the culprit among them, has accused nobody wrongly.
        unsure = finding.confidence <= UNSURE and bool(named & guilty)
        (candidates if unsure else innocents).update(named - guilty)
    return innocents, candidates


def _line_fits(answer: CaseAnswer, truth: Truth) -> bool:
    if answer.line not in truth.lines:
        return False
    if truth.file is None or answer.file is None:
        return truth.file is None
    wanted, named = PurePath(truth.file).parts, PurePath(answer.file).parts
    shorter = min(len(wanted), len(named))
    return wanted[-shorter:] == named[-shorter:]


def _share(answer: CaseAnswer, truth: Truth) -> float:
    if not _cause_fits(answer, truth):
        return 0.0
    culprits, named = set(truth.culprits), set(answer.culprits)
    if culprits == named:
        return 1.0
    return len(culprits) / len(named) if culprits < named else 0.0
