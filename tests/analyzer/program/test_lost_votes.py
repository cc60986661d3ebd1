"""Several ranks go wrong alike, and dumps are lost: who seems to be in the minority may not be.

Whoever is accused went wrong, or is accused with all dumps there, too.  A hang is never healthy.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.program.program import Action, Program, ProgramGroup
from hanglab.analyzer.program.rendering import Style, to_rank_dump
from hanglab.analyzer.program.simulation import Backend, Run, simulate
from hanglab.analyzer.verdict import Status

ROUNDS = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
SEEDS = st.integers(0, 2**32)
#: A finding below this names candidates and says so.
SURE = 0.6
END = (Action("barrier", 0, site=90), Action("all_reduce", 0, site=91))


def _step(random: Random) -> list[Action]:
    ops = ("all_reduce", "broadcast", "all_gather", "barrier")
    calls = [Action(random.choice(ops), 0, 10 + n, random.choice((4, 8))) for n in range(3)]
    return [replace(one, root=0) if one.op == "broadcast" else one for one in calls]


def _wrong(kind: str, step: list[Action], steps: int, at: int) -> list[Action]:
    usual = step * steps
    if kind == "skip":
        return usual[:at] + usual[at + 1 :]
    if kind == "operation":
        other = Action("reduce_scatter", 0, site=900, numel=usual[at].numel)
        return [*usual[:at], other, *usual[at + 1 :]]
    if kind == "size":
        return [*usual[:at], replace(usual[at], numel=usual[at].numel + 3), *usual[at + 1 :]]
    if kind == "longer":
        return usual + step
    return [*usual[:at], Action("all_reduce", 0, site=901, numel=8), *usual[at:]]


def _job(random: Random) -> tuple[Run, set[int]]:
    """A job that repeats a step, in which some ranks go wrong in the same way, and these ranks."""
    world, steps = random.choice((3, 4, 5, 6)), random.choice((1, 3, 6))
    culprits = set(random.sample(range(world), random.randint(1, world - 1)))
    step = _step(random)
    kind = random.choice(("skip", "operation", "size", "longer", "insertion"))
    wrong = _wrong(kind, step, steps, random.randrange(len(step) * steps))
    group = ProgramGroup("0", tuple(range(world)), "default_pg")
    actions = [(*(wrong if r in culprits else step * steps), *END) for r in range(world)]
    backend: Backend = random.choice(("gloo", "nccl"))
    run = simulate(Program((group,), tuple(actions)), backend, ahead=random.choice((2, 6, 40)))
    return run, culprits


def _dumps(run: Run, style: Style, lost: tuple[int, ...] = ()) -> list[RankDump]:
    ranks = range(run.program.world_size)
    return [to_rank_dump(run, rank, style) for rank in ranks if rank not in lost]


def _accused(dumps: list[RankDump]) -> tuple[set[int], set[int]]:
    """Ranks that are accused, and all that are named."""
    findings = synchronization_findings(build_wait_for_graph(dumps))
    sure = {rank for f in findings if f.confidence > SURE for rank in f.culprits}
    return sure, {rank for f in findings for rank in f.culprits}


@given(SEEDS)
@ROUNDS
def test_lost_dumps_accuse_no_innocent(seed: int) -> None:
    random = Random(seed)
    run, culprits = _job(random)
    assume(run.stuck)
    style = Style(boundary=run.backend == "gloo", frames=random.random() < 0.7)
    _, named = _accused(_dumps(run, style))
    for count in (1, 2):
        for lost in combinations(range(run.program.world_size), count):
            sure, _ = _accused(_dumps(run, style, lost))
            assert sure <= culprits | named, (lost, sure, culprits, named)


@pytest.mark.few(1)
@pytest.mark.slow
@given(SEEDS)
@ROUNDS
@pytest.mark.parametrize("boundary", [True, False])
def test_lost_dumps_make_no_hang_healthy(boundary: bool, seed: int) -> None:
    random = Random(seed)
    run, _ = _job(random)
    assume(run.stuck)
    style = Style(boundary=boundary and run.backend == "gloo")
    for count in (0, 1, 2):
        for lost in combinations(range(run.program.world_size), count):
            dumps = _dumps(run, style, lost)
            if dumps:
                verdict = conclude(CaseFacts(graph=build_wait_for_graph(dumps), ranks={}))
                assert verdict.status is not Status.HEALTHY, lost
