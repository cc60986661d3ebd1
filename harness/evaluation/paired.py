"""Two sets of answers on the same Cases: what changed, case by case, and whether by chance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import msgspec

from hanglab.harness.corpus.comparison import Agreement
from hanglab.harness.evaluation.answers import CaseAnswer
from hanglab.harness.evaluation.measures import said
from hanglab.harness.evaluation.scoring import Score
from hanglab.harness.report.rates import wilson

Direction = Literal["better", "worse", "other"]


class Change(msgspec.Struct, frozen=True):
    """A Case on which the two say different things."""

    name: str
    truth: str
    before: str
    after: str
    direction: Direction


class Comparison(msgspec.Struct, kw_only=True):
    """A contender against the one before, over the Cases that both have judged."""

    before: str
    after: str
    cases: int
    #: Cases that only one of the two got right.
    gained: int
    lost: int
    #: Difference of the shares that are right, with Newcombe's interval of 95 %.
    difference: float
    low: float
    high: float
    #: Probability of so uneven a change, or more, if neither were better (McNemar, exact).
    p_value: float
    innocent_before: int
    innocent_after: int
    changes: list[Change]


def compare(
    before: Mapping[str, tuple[CaseAnswer, Score | None]],
    after: Mapping[str, tuple[CaseAnswer, Score | None]],
    names: tuple[str, str],
) -> Comparison:
    """Compare answers by the names of their Cases."""
    both = [(name, before[name], after[name]) for name in after if name in before]
    scored = [(a[1], b[1]) for _, a, b in both if a[1] is not None and b[1] is not None]
    table = [[0, 0], [0, 0]]
    for was, now in scored:
        table[was.right][now.right] += 1
    gained, lost = table[0][1], table[1][0]
    difference, low, high = paired_difference(table[1][1], lost, gained, table[0][0])
    return Comparison(
        before=names[0],
        after=names[1],
        cases=len(both),
        gained=gained,
        lost=lost,
        difference=difference,
        low=low,
        high=high,
        p_value=mcnemar(gained, lost),
        innocent_before=sum(bool(was.innocents) for was, _ in scored),
        innocent_after=sum(bool(now.innocents) for _, now in scored),
        changes=[
            Change(name, a[1].truth if a[1] else "unknown", _words(a), _words(b), _direction(a, b))
            for name, a, b in both
            if _words(a) != _words(b)
        ],
    )


def _words(one: tuple[CaseAnswer, Score | None]) -> str:
    answer, found = one
    word = said(answer, found) if found is not None else answer.label
    word = answer.cause or word
    ranks = ", ".join(map(str, answer.culprits))
    return f"{word} by {ranks}" if ranks else word


def _direction(
    before: tuple[CaseAnswer, Score | None], after: tuple[CaseAnswer, Score | None]
) -> Direction:
    if before[1] is None or after[1] is None:
        return "other"
    was, now = _standing(before[1]), _standing(after[1])
    return "better" if now > was else "worse" if now < was else "other"


def _standing(found: Score) -> tuple[bool, int]:
    """Greater for a better answer: to accuse an innocent is the worst."""
    order = (
        Agreement.DIFFERS,
        Agreement.INCONCLUSIVE,
        Agreement.CANDIDATES,
        Agreement.AGREES,
    )
    return not found.innocents, order.index(found.agreement)


def mcnemar(gained: int, lost: int) -> float:
    """Two-sided exact test of McNemar (Psychometrika 12, 1947): changes either way are a coin's."""
    trials = gained + lost
    tail: int = sum(math.comb(trials, k) for k in range(min(gained, lost) + 1))
    return min(1.0, 2.0 * tail / 2.0**trials) if trials < 1000 else _normal_tail(gained, lost)


def _normal_tail(gained: int, lost: int) -> float:
    """Approximation for so many that the exact numbers do not fit a float."""
    return math.erfc((abs(gained - lost) - 1) / math.sqrt(2.0 * (gained + lost)))


def paired_difference(both: int, first: int, second: int, none: int) -> tuple[float, float, float]:
    """Difference of two shares of the same Cases, second less first, with its interval of 95 %.

    ``first`` and ``second`` are how many only the one and only the other got right.  Newcombe,
    Statistics in Medicine 17 (1998) 2635, method 10: Wilson's intervals of the two, and their
    correlation.
    """
    total = both + first + second + none
    if not total:
        return 0.0, -1.0, 1.0
    p, q = (both + second) / total, (both + first) / total
    (p_low, p_high), (q_low, q_high) = wilson(both + second, total), wilson(both + first, total)
    spread = (both + first) * (second + none) * (both + second) * (first + none)
    excess: float = both * none - first * second
    if excess > 0:
        excess = max(excess - total / 2, 0.0)
    phi = excess / math.sqrt(spread) if spread else 0.0

    def root(one: float, other: float) -> float:
        return math.sqrt(max(0.0, one * one - 2 * phi * one * other + other * other))

    low = p - q - root(p - p_low, q_high - q)
    return p - q, low, p - q + root(p_high - p, q - q_low)
