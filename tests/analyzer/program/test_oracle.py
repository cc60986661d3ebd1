"""Random programs, one fault, evidence lost at random: right or undecided, never wrong."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from hanglab.analyzer.causes.graph_findings import open_finding, synchronization_findings
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.program.oracle import SURE, FindingsJudgement, decidable, judge
from hanglab.analyzer.program.random_runs import RandomRun, random_run
from hanglab.analyzer.verdict import Finding

ROUNDS = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
SEEDS = st.integers(0, 2**32)


def findings_of(drawn: RandomRun, dumps: list[RankDump] | None = None) -> list[Finding]:
    graph = build_wait_for_graph(
        drawn.dumps() if dumps is None else dumps,
        expected=range(drawn.run.program.world_size),
    )
    findings = synchronization_findings(graph)
    question = open_finding(graph)
    assert question is None or not findings
    return findings


def sure(findings: list[Finding]) -> set[int]:
    return {rank for f in findings if f.confidence > SURE for rank in f.culprits}


@pytest.mark.slow
@example(2085227)
@given(SEEDS)
@ROUNDS
def test_one_fault_is_found_or_left_open(seed: int) -> None:
    drawn = random_run(Random(seed), largest=16, healthy=False)
    assume(drawn is not None)
    assert drawn is not None
    judgement = judge(drawn, findings_of(drawn))
    assert judgement is not FindingsJudgement.WRONG
    assert judgement is FindingsJudgement.RIGHT or not decidable(drawn)


@given(SEEDS)
@ROUNDS
def test_healthy_programs_come_out_healthy(seed: int) -> None:
    drawn = random_run(Random(seed), largest=16, healthy=True)
    assert drawn is not None
    assert findings_of(drawn) == []


@pytest.mark.slow
@given(SEEDS)
@ROUNDS
def test_evidence_taken_away_never_moves_the_blame(seed: int) -> None:
    random = Random(seed)
    drawn = random_run(random, largest=8, healthy=False)
    assume(drawn is not None)
    assert drawn is not None
    whole = replace(drawn, missing=frozenset(), rings=dict.fromkeys(drawn.rings))
    dumps = whole.dumps()
    known = sure(findings_of(whole, dumps))
    assume(known)
    left = [dump for dump in dumps if dump.rank != random.randrange(len(dumps))]
    assert sure(findings_of(whole, left)) <= known
    without_frames = replace(whole, style=replace(whole.style, frames=False))
    assert sure(findings_of(without_frames)) <= known


@given(SEEDS)
@example(409333)  # several ranks wait for the one that sent to another
@ROUNDS
def test_the_order_of_dumps_decides_nothing(seed: int) -> None:
    random = Random(seed)
    drawn = random_run(random, largest=8)
    assume(drawn is not None)
    assert drawn is not None
    dumps = drawn.dumps()
    before = findings_of(drawn, list(dumps))
    random.shuffle(dumps)
    assert findings_of(drawn, dumps) == before


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_two_thousand_trials_of_up_to_64_ranks() -> None:
    wrong, missed, could = [], [], 0
    for seed in range(2000):
        drawn = random_run(Random(seed))
        if drawn is None:
            continue
        judgement = judge(drawn, findings_of(drawn))
        if judgement is FindingsJudgement.WRONG:
            wrong.append(seed)
        if decidable(drawn):
            could += 1
            if judgement is FindingsJudgement.INCONCLUSIVE:
                missed.append(seed)
    assert not wrong
    assert len(missed) <= could / 1000, missed
