"""What of an answer is right, whom it accuses, and what many answers come to."""

from __future__ import annotations

from typing import Any

import pytest

from hanglab.harness.corpus.comparison import Agreement
from hanglab.harness.corpus.entries import Truth
from hanglab.harness.evaluation.answers import Accusation, CaseAnswer
from hanglab.harness.evaluation.bounds import Bounds
from hanglab.harness.evaluation.measures import measure, rate
from hanglab.harness.evaluation.paired import compare, mcnemar, paired_difference
from hanglab.harness.evaluation.scoring import Score, score

SKIP = Truth("hung", "skipped_collective", [1], [21], "train.py")
SOUND = Truth("healthy")


def hung(cause: str, *culprits: int, confidence: float = 0.9, **more: Any) -> CaseAnswer:
    return CaseAnswer(
        status="hung", cause=cause, culprits=list(culprits), confidence=confidence, **more
    )


HEALTHY = CaseAnswer(status="healthy", confidence=0.99)
NOTHING = CaseAnswer(status="inconclusive")


def test_who_is_right_has_cause_culprits_and_status() -> None:
    assert score(hung("skipped_collective", 1), [SKIP]).right
    other_rank = score(hung("skipped_collective", 2), [SKIP])
    assert other_rank.cause_right and not other_rank.right and other_rank.innocents == [2]
    other_cause = score(hung("missing_rank", 1), [SKIP])
    assert not other_cause.cause_right and not other_cause.innocents
    failed = score(CaseAnswer(status="failed", cause="skipped_collective", culprits=[1]), [SKIP])
    assert not failed.cause_right and failed.agreement is Agreement.DIFFERS


def test_candidates_are_no_innocents_as_long_as_the_culprit_is_among_them() -> None:
    unsure = score(hung("skipped_collective", 1, 2, confidence=0.5), [SKIP])
    assert (unsure.innocents, unsure.candidates) == ([], [2])
    assert unsure.agreement is Agreement.CANDIDATES and unsure.share == 0.5
    sure = score(hung("skipped_collective", 1, 2), [SKIP])
    assert (sure.innocents, sure.candidates) == ([2], [])
    elsewhere = score(hung("skipped_collective", 2, 3, confidence=0.5), [SKIP])
    assert elsewhere.innocents == [2, 3]


def test_a_further_finding_can_accuse_an_innocent() -> None:
    findings = [
        Accusation("hung", "skipped_collective", [1], 0.9),
        Accusation("corrupt", "reduction_mismatch", [3], 0.9),
    ]
    found = score(hung("skipped_collective", 1, findings=findings), [SKIP])
    assert found.right and found.innocents == [3]


@pytest.mark.parametrize(
    ("file", "line", "right"),
    [
        ("/home/me/train.py", 21, True),
        ("train.py", 21, True),
        ("/home/me/train.py", 22, False),
        ("/home/me/other_train.py", 21, False),
        (None, None, False),
    ],
)
def test_the_line_is_judged_by_the_last_parts_of_its_file(
    file: str | None, line: int | None, right: bool
) -> None:
    assert score(hung("crash", 1, file=file, line=line), [SKIP]).line_right is right
    unknown = Truth("hung", "crash", [1])
    assert score(hung("crash", 1, file=file, line=line), [unknown]).line_right is None
    redacted = Truth("hung", "crash", [1], [21])
    assert score(hung("crash", 1, file=file, line=line), [redacted]).line_right is (line == 21)


def test_of_several_truths_the_nearest_counts() -> None:
    ring = Truth("hung", "p2p_deadlock", [0, 1])
    found = score(hung("p2p_deadlock", 0, 1), [SKIP, ring])
    assert found.right and found.truth == "p2p_deadlock"
    assert score(NOTHING, [SKIP, ring]).truth == "skipped_collective"


def test_where_any_cause_is_right_the_status_is_the_word() -> None:
    anything = Truth("hung", None, [1])
    assert score(hung("crash", 1), [anything]).right
    assert score(hung("crash", 1), [anything]).truth == "hung"


def scored(answer: CaseAnswer, *truths: Truth) -> tuple[CaseAnswer, Score | None]:
    return answer, score(answer, list(truths)) if truths else None


ANSWERS = [
    scored(hung("skipped_collective", 1, file="train.py", line=21), SKIP),
    scored(hung("skipped_collective", 1, 2, confidence=0.5), SKIP),
    scored(hung("missing_rank", 2), SKIP),
    scored(NOTHING, SKIP),
    scored(hung("skipped_collective", 0), SOUND),
    scored(HEALTHY, SOUND),
    scored(CaseAnswer(crash="ValueError: no"), SOUND),
    scored(hung("crash", 0)),
]


def test_measures_by_cause_and_over_all() -> None:
    found = measure(ANSWERS)
    assert (found.cases, found.labelled, found.crashes) == (8, 7, 1)
    assert found.recall == rate(1, 4)
    # Neither candidates nor silence are accusations: right, a wrong cause, a sound job.
    assert found.precision == rate(1, 3)
    assert found.innocent == rate(2, 7)
    assert found.false_alarms == rate(1, 3)
    assert found.candidates == rate(1, 7) and found.candidate_ranks == 1
    assert found.inconclusive == rate(1, 7)
    assert found.line == rate(1, 4)
    by_cause = {one.cause: one for one in found.by_cause}
    skipped = by_cause["skipped_collective"]
    assert skipped.recall == rate(2, 4) and skipped.precision == rate(2, 3)
    assert skipped.right == rate(1, 4) and skipped.innocent == 1
    assert by_cause["missing_rank"].precision == rate(0, 1) and by_cause["missing_rank"].cases == 0
    cells = {(one.truth, one.said): one.count for one in found.confusion}
    assert cells["skipped_collective", "skipped_collective"] == 2
    assert cells["healthy", "crash"] == cells["skipped_collective", "inconclusive"] == 1
    assert sum(cells.values()) == found.labelled
    # (0.9, 1), (0.5, 0.5), (0.9, 0), (0.9, 0), (0.99, 1): by hand.
    assert found.brier == pytest.approx((0.01 + 0.81 + 0.81 + 0.0001) / 5)


def test_nothing_has_no_share() -> None:
    found = measure([])
    assert found.recall.share is None and found.brier is None and found.longest_s == 0.0


def test_the_interval_of_a_paired_difference_is_that_of_the_literature() -> None:
    # Newcombe, Statistics in Medicine 17 (1998), 2635 to 2650, table III, method 10.
    difference, low, high = paired_difference(36, 2, 12, 0)
    assert (difference, low, high) == pytest.approx((0.2, 0.0569, 0.3404), abs=5e-5)


@pytest.mark.parametrize("pair", [(0, 0, 1.0), (1, 0, 1.0), (10, 0, 2 / 1024), (5, 5, 1.0)])
def test_mcnemar_is_exact(pair: tuple[int, int, float]) -> None:
    gained, lost, expected = pair
    assert mcnemar(gained, lost) == mcnemar(lost, gained) == pytest.approx(expected)


def test_what_changed_is_told_case_by_case() -> None:
    before = {
        "gains": scored(NOTHING, SKIP),
        "loses": scored(hung("skipped_collective", 1), SKIP),
        "accuses": scored(NOTHING, SOUND),
        "stays": scored(HEALTHY, SOUND),
        "gone": scored(HEALTHY, SOUND),
    }
    after = {
        "gains": scored(hung("skipped_collective", 1), SKIP),
        "loses": scored(hung("missing_rank", 1), SKIP),
        "accuses": scored(hung("crash", 1), SOUND),
        "stays": scored(HEALTHY, SOUND),
        "new": scored(HEALTHY, SOUND),
    }
    found = compare(before, after, ("then", "now"))
    assert (found.cases, found.gained, found.lost) == (4, 1, 1)
    assert (found.innocent_before, found.innocent_after) == (0, 1)
    assert {one.name: one.direction for one in found.changes} == {
        "gains": "better",
        "loses": "worse",
        "accuses": "worse",
    }
    assert found.changes[0].before == "inconclusive"
    assert found.changes[0].after == "skipped_collective by 1"
    assert found.low < found.difference < found.high and found.p_value == 1.0


def test_bounds_are_crossed_by_less_and_by_nothing_to_measure() -> None:
    found = measure(ANSWERS)
    assert Bounds(0.25, 0.3, 0.3, 0.2).crossed(found) == []
    (sentence,) = Bounds(min_recall=0.26).crossed(found)
    assert sentence == "the recall is 0.25 (1 of 4), and should be at least 0.26"
    assert len(Bounds(0.9, 0.9, 0.0, 0.0).crossed(found)) == 4
    (sentence,) = Bounds(min_recall=0.0).crossed(measure([]))
    assert "nothing to measure it on" in sentence
