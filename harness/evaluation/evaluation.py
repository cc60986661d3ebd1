"""An evaluation: answers on labelled Cases, their measures, and what a heuristic changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from hanglab.harness.corpus.entries import Truth
from hanglab.harness.errors import UsageError
from hanglab.harness.evaluation.answers import BASELINE, SUBJECT, CaseAnswer
from hanglab.harness.evaluation.judging import Judged
from hanglab.harness.evaluation.measures import Measures, measure
from hanglab.harness.evaluation.paired import Comparison, compare
from hanglab.harness.evaluation.scoring import Score, score

SCHEMA: Literal["hanglab.evaluation/1"] = "hanglab.evaluation/1"

Scored = tuple[CaseAnswer, Score | None]


class CaseRecord(msgspec.Struct, kw_only=True):
    """One Case with all answers on it and their scores, by contender."""

    name: str
    truth: list[Truth] | None
    answers: dict[str, CaseAnswer]
    scores: dict[str, Score]

    def scored(self, contender: str) -> Scored:
        return self.answers[contender], self.scores.get(contender)


class PeerMeasures(msgspec.Struct, kw_only=True):
    """A peer and the subject on those labelled Cases that the peer can read."""

    peer: str
    readable: int
    labelled: int
    peer_measures: Measures
    subject_measures: Measures


class Evaluation(msgspec.Struct, kw_only=True):
    """The whole of it; its JSON form is ``hanglab.evaluation/1``."""

    schema: Literal["hanglab.evaluation/1"] = SCHEMA
    #: Heuristics that were judged, in words.
    heuristics: str
    #: Where the Cases came from.
    sources: list[str]
    #: Cases that were to be judged; ``cases`` has fewer where somebody stopped it.
    planned: int
    interrupted: bool = False
    cases: list[CaseRecord]
    #: Cases that could not be judged, in a sentence each.
    broken: dict[str, str] = {}
    measures: Measures
    comparison: Comparison | None = None
    peers: list[PeerMeasures] = []
    #: Heuristics that were not believed: Cases in which, and the first reason.
    failed_heuristics: dict[str, tuple[int, str]] = {}
    #: From the first Case to the last.
    seconds: float = 0.0

    def scored(self, contender: str = SUBJECT) -> dict[str, Scored]:
        """Answers of one contender by the names of the Cases that it judged."""
        return {one.name: one.scored(contender) for one in self.cases if contender in one.answers}


def evaluate(
    judged: Sequence[Judged],
    *,
    heuristics: str,
    sources: Sequence[str],
    planned: int,
    broken: dict[str, str],
    peers: Sequence[str] = (),
    base: Evaluation | None = None,
    seconds: float = 0.0,
) -> Evaluation:
    """Score what was judged.  ``base`` is an earlier evaluation to compare it with."""
    records = [_record(one) for one in judged if not one.broken]
    found = Evaluation(
        heuristics=heuristics,
        sources=list(sources),
        planned=planned,
        interrupted=len(judged) < planned,
        cases=records,
        broken=broken | {one.case.name: one.broken for one in judged if one.broken},
        measures=measure([one.scored(SUBJECT) for one in records]),
        failed_heuristics=_failed(records),
        seconds=seconds,
    )
    if base is not None:
        names = (f"earlier ({base.heuristics})", f"now ({heuristics})")
        found.comparison = compare(_rescored(base, found), found.scored(), names)
    elif any(BASELINE in one.answers for one in records):
        found.comparison = compare(
            found.scored(BASELINE), found.scored(), ("as installed", heuristics)
        )
    found.peers = [_beside(peer, records) for peer in peers]
    return found


def _record(judged: Judged) -> CaseRecord:
    truths = judged.case.truths
    scores = {
        name: score(answer, truths) for name, answer in judged.answers.items() if truths is not None
    }
    return CaseRecord(name=judged.case.name, truth=truths, answers=judged.answers, scores=scores)


def _rescored(base: Evaluation, now: Evaluation) -> dict[str, Scored]:
    """Earlier answers by today's labels, which may have been mended since."""
    truths = {one.name: one.truth for one in now.cases}
    earlier = {}
    for name, (answer, _) in base.scored().items():
        known = truths.get(name)
        earlier[name] = answer, None if known is None else score(answer, known)
    return earlier


def _failed(records: Sequence[CaseRecord]) -> dict[str, tuple[int, str]]:
    failed: dict[str, tuple[int, str]] = {}
    for record in records:
        for name, reason in record.answers[SUBJECT].failed.items():
            times, first = failed.get(name, (0, reason))
            failed[name] = times + 1, first
    return failed


def _beside(peer: str, records: Sequence[CaseRecord]) -> PeerMeasures:
    labelled = [one for one in records if peer in one.scores]
    readable = [one for one in labelled if one.answers[peer].refused is None]
    return PeerMeasures(
        peer=peer,
        readable=len(readable),
        labelled=len(labelled),
        peer_measures=measure([one.scored(peer) for one in readable]),
        subject_measures=measure([one.scored(SUBJECT) for one in readable]),
    )


def read_evaluation(path: Path) -> Evaluation:
    """An evaluation that was written with ``--json``.  Raises UsageError for anything else."""
    advice = "Give a file that `hanglab eval --json` wrote."
    try:
        return msgspec.json.decode(path.read_bytes(), type=Evaluation)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", advice) from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is no evaluation: {error}.", advice) from error
