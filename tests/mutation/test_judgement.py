"""What becomes of a mutant, by its verdict and by what its ranks told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hanglab.analyzer.verdict import Cause, Decision, Finding, Location, Status, Verdict
from hanglab.harness.mutation.judgement import Fate, MutantJudgement, judge
from hanglab.harness.mutation.mutant import Mutant
from hanglab.harness.mutation.observation import End, JobObservation, RaisedException
from hanglab.harness.mutation.operator import Operator
from hanglab.harness.mutation.table import count, exit_code
from hanglab.harness.mutation.truth import Answer, ExpectedVerdict, FaultEffect, truth

SKIPPED = truth([Cause.SKIPPED_COLLECTIVE], [1])


def mutant(expected: ExpectedVerdict) -> Mutant:
    operator = Operator("skip", "a skip", lambda target: ())
    return Mutant("m001_skip", operator, Path("/tmp/m001_skip.py"), 10, 12, 1, expected, "it skips")


def verdict(
    cause: Cause | None = Cause.SKIPPED_COLLECTIVE,
    culprits: tuple[int, ...] = (1,),
    line: int | None = 10,
    status: Status = Status.HUNG,
) -> Verdict:
    place = Location("m001_skip.py", line, "main", 1) if line else None
    return Verdict(status=status, cause=cause, culprits=list(culprits), location=place)


def seen(
    end: End = End.HANGS,
    struck: tuple[int, ...] = (1,),
    raised: str = "",
    gone: frozenset[int] = frozenset(),
) -> JobObservation:
    events = [RaisedException(1, raised, 14, own=True)] if raised else []
    return JobObservation(end, list(struck), events, {1: 20}, gone)


@pytest.mark.parametrize(
    ("given", "observed", "fate"),
    [
        (verdict(), seen(), Fate.FOUND),
        (verdict(line=12), seen(), Fate.FOUND),  # the last line of the statement
        (verdict(line=20), seen(), Fate.FOUND),  # where the culprit stood
        (verdict(line=13), seen(), Fate.MISSED),
        (verdict(line=None), seen(), Fate.MISSED),
        (verdict(line=None), seen(gone=frozenset({1})), Fate.FOUND),  # it stands on no line
        (verdict(Cause.UNEVEN_INPUTS), seen(), Fate.MISSED),
        (verdict(culprits=(2,)), seen(), Fate.MISSED),
        (verdict(culprits=(1, 2)), seen(), Fate.MISSED),
        (verdict(None, (), None, Status.HEALTHY), seen(End.WELL), Fate.SILENT),
        (verdict(None, (), None, Status.HEALTHY), seen(End.HANGS), Fate.MISSED),
        (verdict(status=Status.CORRUPT), seen(End.WELL), Fate.FOUND),
        (verdict(), seen(struck=()), Fate.NOT_STRUCK),
        (verdict(Cause.EXCEPTION, line=14), seen(End.FAILS, raised="NameError"), Fate.FOUND),
        (verdict(Cause.EXCEPTION, line=14), seen(End.FAILS), Fate.MISSED),
    ],
)
def test_a_mutant_is_found_by_cause_ranks_and_line(
    given: Verdict, observed: JobObservation, fate: Fate
) -> None:
    assert judge(mutant(SKIPPED), given, observed).fate is fate


def test_where_hosts_only_enqueue_the_next_call_s_line_is_right_too() -> None:
    observed = replace(seen(), calling={1: 15})
    assert judge(mutant(SKIPPED), verdict(line=15), observed, enqueued=True).fate is Fate.FOUND
    assert judge(mutant(SKIPPED), verdict(line=15), observed).fate is Fate.MISSED
    assert judge(mutant(SKIPPED), verdict(line=16), observed, enqueued=True).fate is Fate.MISSED


def test_a_job_that_could_not_be_judged_is_an_error_and_says_why() -> None:
    judged = judge(mutant(SKIPPED), None, None, "no room")
    assert (judged.fate, judged.reason) == (Fate.ERROR, "no room")
    assert exit_code([judged]) == 4


def test_innocents_are_those_that_no_answer_names_also_in_further_findings() -> None:
    given = verdict()
    given.findings = [
        Finding(status=Status.HUNG, culprits=[1]),
        Finding(status=Status.HUNG, culprits=[3]),
    ]
    judged = judge(mutant(SKIPPED), given, seen())
    assert judged.accused == [3] and judged.fate is Fate.MISSED
    peers = truth([Cause.SKIPPED_COLLECTIVE], [1], also_named=[3])
    assert judge(mutant(peers), given, seen()).fate is Fate.FOUND


def test_each_of_several_answers_is_right_with_its_own_cause_only() -> None:
    either = truth([Cause.COLLECTIVE_MISMATCH], [1], Answer([Cause.SKIPPED_COLLECTIVE], [0, 2, 3]))
    assert judge(mutant(either), verdict(culprits=(0, 2, 3)), seen()).fate is Fate.FOUND
    mixed = judge(mutant(either), verdict(), seen())
    assert mixed.rank_right and not mixed.cause_right


def test_a_slow_mutant_that_ends_well_is_no_silent_one() -> None:
    slow = truth([Cause.SLOW_COMPUTE], [1], effect=FaultEffect.SLOWS)
    healthy = verdict(None, (), None, Status.HEALTHY)
    assert judge(mutant(slow), healthy, seen(End.WELL)).fate is Fate.MISSED
    # All ranks have ended, and the line at which it was slow is known all the same.
    found = verdict(Cause.SLOW_COMPUTE, status=Status.SLOW)
    judged = judge(mutant(slow), found, seen(End.WELL, gone=frozenset(range(4))))
    assert judged.fate is Fate.FOUND and judged.line_right


def test_figures_count_shares_of_those_that_struck_and_were_not_silent() -> None:
    healthy = verdict(None, (), None, Status.HEALTHY)
    judged: list[MutantJudgement] = [
        judge(mutant(SKIPPED), verdict(), seen()),
        judge(mutant(SKIPPED), verdict(culprits=(2,)), seen()),
        judge(mutant(SKIPPED), healthy, seen(End.WELL)),
        judge(mutant(SKIPPED), healthy, seen(End.WELL, struck=())),
    ]
    figures = count("all", judged)
    assert (figures.mutants, figures.struck, figures.silent, figures.judged) == (4, 3, 1, 2)
    assert (figures.found, figures.right_cause, figures.right_rank) == (2, 2, 1)
    assert (figures.right_cause_and_rank, figures.innocents_accused) == (1, 1)
    assert exit_code(judged) == 1
    assert exit_code(judged[:1]) == 0
    assert exit_code(judged[2:]) == 2


@pytest.mark.parametrize(
    ("branches", "named", "end", "counts"),
    [
        ([10, 14], ("m001_skip.py", 14), End.HANGS, (1, 0, 1)),
        ([10], ("m001_skip.py", 14), End.HANGS, (0, 1, 1)),
        ([10], ("other.py", 10), End.HANGS, (0, 1, 1)),
        ([10], None, End.HANGS, (0, 0, 1)),
        ([10], None, End.WELL, (0, 0, 0)),
        ([], ("m001_skip.py", 10), End.HANGS, (0, 0, 0)),
    ],
)
def test_the_statement_that_parted_the_ranks_is_right_or_wrong_or_not_named(
    branches: list[int],
    named: tuple[str, int] | None,
    end: End,
    counts: tuple[int, int, int],
) -> None:
    told = verdict()
    told.decision = Decision(*named, "main", "if late:", []) if named else None
    figures = count("all", [judge(replace(mutant(SKIPPED), branches=branches), told, seen(end))])
    assert (figures.right_branch, figures.wrong_branch, figures.branches) == counts
