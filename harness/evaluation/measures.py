"""Measures over many scores: by cause and over all, each share with its interval."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from hanglab.harness.corpus.comparison import Agreement
from hanglab.harness.evaluation.answers import CaseAnswer
from hanglab.harness.evaluation.reliability import Bin, brier, reliability
from hanglab.harness.evaluation.scoring import HEALTHY, Score
from hanglab.harness.report.rates import wilson


class Rate(msgspec.Struct, frozen=True):
    """A share, with Wilson's interval of 95 %; ``share`` is None of nothing."""

    count: int
    of: int
    share: float | None
    low: float
    high: float


def rate(count: int, of: int) -> Rate:
    low, high = wilson(count, of)
    return Rate(count, of, count / of if of else None, low, high)


class Confusion(msgspec.Struct, frozen=True):
    """Count of Cases of one truth that got a word: a cause, or a status where there is none."""

    truth: str
    said: str
    count: int


class CauseMeasures(msgspec.Struct, kw_only=True):
    """Measures of one cause, or of ``healthy``, or of a status where any cause is right."""

    cause: str
    cases: int
    #: Of its Cases, those whose verdict leads with it.
    recall: Rate
    #: Of the verdicts that lead with it, those of its Cases.
    precision: Rate
    #: Of its Cases, those whose cause and culprits are right.
    right: Rate
    #: Its Cases in which somebody innocent is accused.
    innocent: int
    inconclusive: Rate
    line: Rate
    #: Brier score of the verdicts that lead with it; None without any.
    brier: float | None
    #: Mean time for one of its Cases, in seconds.
    seconds: float


class Measures(msgspec.Struct, kw_only=True):
    """Measures of one contender over all Cases."""

    cases: int
    #: Those of which the truth is known; all shares are of these.
    labelled: int
    crashes: int
    #: Cause, culprits and status are right.
    right: Rate
    #: The same of the faulty ones.
    recall: Rate
    #: Of the verdicts that accuse somebody or name a fault, and more than candidates, those right.
    precision: Rate
    #: Cases in which somebody innocent is accused.
    innocent: Rate
    #: Sound jobs in which a fault is named.
    false_alarms: Rate
    #: Verdicts that name candidates, with the culprits among them.
    candidates: Rate
    #: Ranks among all candidates that did nothing.
    candidate_ranks: int
    inconclusive: Rate
    line: Rate
    brier: float | None
    reliability: list[Bin]
    #: Time for a Case, in seconds.
    mean_s: float
    median_s: float
    longest_s: float
    by_cause: list[CauseMeasures]
    confusion: list[Confusion]


Pair = tuple[CaseAnswer, Score]


def measure(answers: Sequence[tuple[CaseAnswer, Score | None]]) -> Measures:
    """Measures of answers, each with its score where the truth is known."""
    pairs = [(answer, found) for answer, found in answers if found is not None]
    faulty = [pair for pair in pairs if pair[1].truth != HEALTHY]
    sound = [pair for pair in pairs if pair[1].truth == HEALTHY]
    accusing = [pair for pair in pairs if _names_a_fault(pair[0]) and not _unsure(pair[1])]
    seconds = [answer.seconds for answer, _ in answers] or [0.0]
    score_of_all, bins = _calibration(pairs)
    return Measures(
        cases=len(answers),
        labelled=len(pairs),
        crashes=sum(answer.crash is not None for answer, _ in answers),
        right=_rate(pairs, lambda answer, found: found.right),
        recall=_rate(faulty, lambda answer, found: found.right),
        precision=_rate(accusing, lambda answer, found: found.right),
        innocent=_rate(pairs, lambda answer, found: bool(found.innocents)),
        false_alarms=_rate(sound, lambda answer, found: _names_a_fault(answer)),
        candidates=_rate(pairs, lambda answer, found: _unsure(found)),
        candidate_ranks=sum(len(found.candidates) for _, found in pairs),
        inconclusive=_rate(pairs, _is_inconclusive),
        line=_lines(pairs),
        brier=score_of_all,
        reliability=bins,
        mean_s=statistics.fmean(seconds),
        median_s=statistics.median(seconds),
        longest_s=max(seconds),
        by_cause=[_of_cause(cause, pairs) for cause in _words(pairs)],
        confusion=confusion(pairs),
    )


def confusion(pairs: Iterable[Pair]) -> list[Confusion]:
    """Pairs of words that occurred, by truth and the most frequent first."""
    counts = Counter((found.truth, said(answer, found)) for answer, found in pairs)
    return [
        Confusion(truth, word, count)
        for (truth, word), count in sorted(counts.items(), key=lambda one: (one[0][0], -one[1]))
    ]


def said(answer: CaseAnswer, found: Score) -> str:
    """The answer in a word; the truth's own where any cause is right and the status is."""
    if found.cause_right:
        return found.truth
    # The cause is right, and what it did to the job is not.
    return f"{answer.label} ({answer.status})" if answer.label == found.truth else answer.label


def _of_cause(cause: str, pairs: Sequence[Pair]) -> CauseMeasures:
    mine = [pair for pair in pairs if pair[1].truth == cause]
    saying = [pair for pair in pairs if said(*pair) == cause]
    return CauseMeasures(
        cause=cause,
        cases=len(mine),
        recall=_rate(mine, lambda answer, found: found.cause_right),
        precision=_rate(saying, lambda answer, found: found.cause_right),
        right=_rate(mine, lambda answer, found: found.right),
        innocent=sum(bool(found.innocents) for _, found in mine),
        inconclusive=_rate(mine, _is_inconclusive),
        line=_lines(mine),
        brier=_calibration(saying)[0],
        seconds=statistics.fmean(answer.seconds for answer, _ in mine) if mine else 0.0,
    )


def _words(pairs: Sequence[Pair]) -> list[str]:
    """Truths, and causes that were said of others: these have no recall, but precision."""
    truths = {found.truth for _, found in pairs}
    words = {said(*pair) for pair in pairs if pair[0].conclusive}
    return sorted(truths | words, key=lambda word: (word == HEALTHY, word))


def _rate(pairs: Sequence[Pair], holds: Callable[[CaseAnswer, Score], bool]) -> Rate:
    return rate(sum(holds(*pair) for pair in pairs), len(pairs))


def _lines(pairs: Sequence[Pair]) -> Rate:
    judged = [found.line_right for _, found in pairs if found.line_right is not None]
    return rate(sum(judged), len(judged))


def _calibration(pairs: Sequence[Pair]) -> tuple[float | None, list[Bin]]:
    """Brier score and reliability of conclusive answers."""
    judged = [(answer.confidence, found.share) for answer, found in pairs]
    said_and_right = [(p, share) for p, share in judged if share is not None]
    if not said_and_right:
        return None, []
    predicted, right = zip(*said_and_right, strict=True)
    return brier(predicted, right), reliability(predicted, right)


def _names_a_fault(answer: CaseAnswer) -> bool:
    return answer.conclusive and answer.status != HEALTHY


def _unsure(found: Score) -> bool:
    return found.agreement is Agreement.CANDIDATES


def _is_inconclusive(answer: CaseAnswer, found: Score) -> bool:
    return answer.crash is None and not answer.conclusive
