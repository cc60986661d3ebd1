"""Measures of a suite, by which tools for MPI are compared: over scripts, each with its label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from hanglab.harness.corpus.comparison import UNSURE
from hanglab.harness.evaluation.answers import CaseAnswer
from hanglab.harness.evaluation.measures import Rate, rate
from hanglab.harness.evaluation.suite.declaration import LabelledScript, LabelledSuite
from hanglab.harness.evaluation.suite.running import ScriptRun

Said = Literal["ok", "error", "inconclusive"]


class ScriptScore(msgspec.Struct, kw_only=True):
    """One script: what most of its runs said, and what of it is right.

    None stands where nothing is known: no answer, or no such thing in the label.
    """

    script: LabelledScript
    runs: list[ScriptRun]
    said: Said | None
    answer: CaseAnswer | None
    class_right: bool | None
    culprits_right: bool | None
    line_right: bool | None
    #: Ranks that are accused and are no culprits of the label.
    innocents: list[int]
    #: Findings beside the one that is right; None where none is.
    noise: int | None
    #: True where the runs did not all say the same.
    varies: bool | None
    #: True where the job ended otherwise than the label says.
    otherwise: bool


class SuiteMeasures(msgspec.Struct, kw_only=True):
    """Measures over some scripts.  Rates are of those that got an answer."""

    scripts: int
    unanswered: int
    #: Of scripts with an error, those called so; inconclusive ones are left out.
    decided_recall: Rate
    #: The same, with inconclusive ones among the missed.
    recall: Rate
    #: Of scripts called erroneous, those that are.
    precision: Rate
    #: Of sound scripts, those called so; inconclusive ones are left out.
    specificity: Rate
    f1: float | None
    inconclusive: Rate
    class_agreement: Rate
    culprits: Rate
    line: Rate
    innocent: Rate
    #: Findings beside right ones, and how many scripts have a right one.
    noise: int
    right_findings: int
    nondeterminism: Rate


def score_suite(suite: LabelledSuite, runs: Mapping[str, Sequence[ScriptRun]]) -> list[ScriptScore]:
    """A score for each script."""
    return [_score(suite, script, list(runs.get(script.file, ()))) for script in suite.scripts]


def _score(suite: LabelledSuite, script: LabelledScript, runs: list[ScriptRun]) -> ScriptScore:
    answers = [run.answer for run in runs if run.answer is not None]
    counts = Counter(map(_words, answers))
    answer = max(answers, key=lambda one: counts[_words(one)], default=None)
    # Where the script is sound or was not found to be faulty, there is no class to agree with.
    found = script.label == "error" and answer is not None and _said(answer) == "error"
    causes = suite.causes(script.kind) if script.kind is not None else frozenset()
    class_right = answer.cause in causes if found and answer is not None and causes else None
    culprits_right = line_right = None
    if found and answer is not None:
        if script.culprits is not None:
            culprits_right = sorted(answer.culprits) == sorted(script.culprits)
        if script.lines:
            line_right = answer.line in script.lines and _names(answer.file, script.file)
    return ScriptScore(
        script=script,
        runs=runs,
        said=_said(answer) if answer is not None else None,
        answer=answer,
        class_right=class_right,
        culprits_right=culprits_right,
        line_right=line_right,
        innocents=_innocents(script, answer),
        noise=_noise(answer, causes) if found and answer is not None else None,
        varies=len(counts) > 1 if len(answers) > 1 else None,
        otherwise=any(_otherwise(script, run) for run in runs),
    )


def _words(answer: CaseAnswer) -> tuple[str | None, str | None, tuple[int, ...]]:
    return answer.status, answer.cause, tuple(answer.culprits)


def _said(answer: CaseAnswer) -> Said:
    if not answer.conclusive:
        return "inconclusive"
    return "ok" if answer.status == "healthy" else "error"


def _names(named: str | None, file: str) -> bool:
    return named is not None and named.rpartition("/")[2] == file.rpartition("/")[2]


def _innocents(script: LabelledScript, answer: CaseAnswer | None) -> list[int]:
    guilty = script.culprits if script.label == "error" else []
    if answer is None or guilty is None:
        return []
    accused: set[int] = set()
    for finding in answer.findings:
        named = set(finding.culprits)
        # Candidates with a culprit among them accuse nobody wrongly.
        if finding.confidence > UNSURE or not named & set(guilty):
            accused |= named
    return sorted(accused - set(guilty))


def _noise(answer: CaseAnswer, causes: frozenset[str]) -> int | None:
    right = sum(one.cause in causes for one in answer.findings)
    return len(answer.findings) - 1 if right else None


def _otherwise(script: LabelledScript, run: ScriptRun) -> bool:
    expected = "fine" if script.observable == "silently_wrong" else script.observable
    return run.observed is not None and run.observed != expected


def measure_suite(scores: Sequence[ScriptScore]) -> SuiteMeasures:
    """Measures over all of these scripts."""
    answered = [one for one in scores if one.said is not None]
    errors = [one for one in answered if one.script.label == "error"]
    sound = [one for one in answered if one.script.label == "ok"]
    decided = [one for one in answered if one.said != "inconclusive"]
    recall = _rate(errors, lambda one: one.said == "error")
    precision = _rate(
        [one for one in answered if one.said == "error"], lambda one: one.script.label == "error"
    )
    noise = [one.noise for one in answered if one.noise is not None]
    return SuiteMeasures(
        scripts=len(scores),
        unanswered=len(scores) - len(answered),
        decided_recall=_rate(
            [one for one in decided if one.script.label == "error"],
            lambda one: one.said == "error",
        ),
        recall=recall,
        precision=precision,
        specificity=_rate(
            [one for one in sound if one.said != "inconclusive"], lambda one: one.said == "ok"
        ),
        f1=_f1(precision.share, recall.share),
        inconclusive=_rate(answered, lambda one: one.said == "inconclusive"),
        class_agreement=_judged(answered, lambda one: one.class_right),
        culprits=_judged(answered, lambda one: one.culprits_right),
        line=_judged(answered, lambda one: one.line_right),
        innocent=_rate(answered, lambda one: bool(one.innocents)),
        noise=sum(noise),
        right_findings=len(noise),
        nondeterminism=_judged(answered, lambda one: one.varies),
    )


def _rate(scores: Sequence[ScriptScore], holds: Callable[[ScriptScore], bool]) -> Rate:
    return rate(sum(map(holds, scores)), len(scores))


def _judged(scores: Sequence[ScriptScore], value: Callable[[ScriptScore], bool | None]) -> Rate:
    known = [judged for one in scores if (judged := value(one)) is not None]
    return rate(sum(known), len(known))


def _f1(precision: float | None, recall: float | None) -> float | None:
    if precision is None or recall is None or precision + recall == 0:
        return None
    return 2 * precision * recall / (precision + recall)
