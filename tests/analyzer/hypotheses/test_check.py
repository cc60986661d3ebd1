"""Proposals held against a simulation of the Program that the dumps show."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import msgspec
import pytest
from random_programs import random_program
from random_runs import random_run

from hanglab.analyzer.causes.matched_operations import synchronization
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.hypotheses.check import SOURCE, check_hypotheses
from hanglab.analyzer.hypotheses.implicated import representatives, waiting_for
from hanglab.analyzer.hypotheses.thresholds import NOT_REPRODUCED, SIMULATED_RANKS
from hanglab.analyzer.program.faults import FAULTS, NCCL_ONLY, make_fault
from hanglab.analyzer.program.program import Action, Program, ProgramGroup
from hanglab.analyzer.program.rendering import Style, to_rank_dump
from hanglab.analyzer.program.simulation import Backend, Run, simulate
from hanglab.analyzer.proposal import Proposal
from hanglab.analyzer.verdict import Cause, Inputs

WORLD = ProgramGroup("0", (0, 1, 2, 3), "default_pg")
STEP = (Action("all_reduce", 0, site=10, numel=8), Action("broadcast", 0, site=11, root=0))


def facts_of(dumps: list[RankDump], size: int) -> CaseFacts:
    graph = build_wait_for_graph(dumps, expected=range(size))
    return CaseFacts(
        graph=graph,
        ranks={rank: RankView(rank=rank, has_dump=True) for rank in graph.ranks},
        inputs=Inputs(ranks=len(graph.ranks)),
    )


def facts_of_run(run: Run, *missing: int) -> CaseFacts:
    size = run.program.world_size
    style = Style(boundary=run.backend == "gloo")
    dumps = [to_rank_dump(run, rank, style) for rank in range(size) if rank not in missing]
    return facts_of(dumps, size)


def told(proposal: Proposal) -> list[str]:
    return [one.detail for one in proposal.finding.evidence if one.source == SOURCE]


def renamed(proposal: Proposal, *culprits: int, confidence: float) -> Proposal:
    finding = msgspec.structs.replace(
        proposal.finding, culprits=list(culprits), confidence=confidence
    )
    return Proposal(finding, failure_on_record=proposal.failure_on_record)


def program_of(*ranks: tuple[Action, ...]) -> Program:
    return Program((ProgramGroup("0", tuple(range(len(ranks))), "default_pg"),), ranks)


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
@pytest.mark.parametrize("culprit", [0, 3])
def test_a_rank_that_stopped_leaves_what_was_found(backend: Backend, culprit: int) -> None:
    run = simulate(program_of(*[STEP * 3] * 4), backend, stops={culprit: 3})
    facts = facts_of_run(run)
    (before,) = synchronization(facts)
    (after,) = check_hypotheses(facts, [before])
    assert after.finding.culprits == [culprit]
    assert after.finding.confidence == before.finding.confidence
    assert "brings about what was found" in told(after)[0] and "missing" in told(after)[0]


def test_an_innocent_that_only_waits_loses_the_confidence_in_it() -> None:
    facts = facts_of_run(simulate(program_of(*[STEP * 3] * 4), "gloo", stops={1: 3}))
    (right,) = synchronization(facts)
    (after,) = check_hypotheses(facts, [renamed(right, 2, confidence=0.9)])
    assert after.finding.confidence <= NOT_REPRODUCED
    assert "no fault of rank 2 that is tried brings about what was found" in told(after)[0]


def test_without_the_culprits_buffer_the_check_was_not_possible() -> None:
    facts = facts_of_run(simulate(program_of(*[STEP * 3] * 4), "gloo", stops={1: 3}), 1)
    whole = facts_of_run(simulate(program_of(*[STEP * 3] * 4), "gloo", stops={1: 3}))
    (proposal,) = synchronization(whole)
    (after,) = check_hypotheses(facts, [proposal])
    assert told(after) == ["No simulation was possible: rank 1 left no entries."]
    assert after.finding.confidence == proposal.finding.confidence


def test_a_half_left_out_and_one_too_many_stay_alternatives() -> None:
    first = Action("all_reduce", 0, site=10)
    receive = Action("recv", 0, site=12, peer=0)
    last = Action("barrier", 0, site=20, numel=0)
    run = simulate(program_of((first, last), (first, receive, last)), "gloo")
    facts = facts_of_run(run)
    (after,) = check_hypotheses(facts, synchronization(facts))
    assert (after.finding.cause, after.finding.culprits) == (Cause.P2P_UNMATCHED, [0, 1])
    assert told(after)[0].startswith(
        "Simulated: each of these brings about what was found: rank 0 missing"
    )
    assert "; rank 1 having one operation too many" in told(after)[0]


def test_only_who_took_the_wrong_peer_leaves_what_was_found() -> None:
    # Rank 1 receives from rank 2, and not from rank 0, which sends; rank 2 is in the barrier.
    last = Action("barrier", 0, site=20, numel=0)
    wrong = Action("recv", 0, site=12, peer=2)
    run = simulate(
        program_of((Action("send", 0, site=11, peer=1), last), (wrong, last), (last,)), "nccl"
    )
    facts = facts_of_run(run)
    for proposal in check_hypotheses(facts, synchronization(facts)):
        assert 1 in proposal.finding.culprits
        assert any("another rank than the one that waits" in one for one in told(proposal))


def test_a_send_to_another_rank_that_has_ended_leaves_what_was_found() -> None:
    # Rank 1 has sent to rank 0 what rank 2 waits for; rank 0 took it for the next of its own.
    last = Action("barrier", 0, site=20, numel=0)
    sends = [Action("send", 0, site=11, peer=peer) for peer in (0, 2)]
    takes = Action("recv", 0, site=12, peer=1)
    right = ((takes,) * 3, (*sends, *sends, *sends), (takes,) * 3)
    wrong = (*sends, sends[0], sends[0], *sends)
    run = simulate(program_of((*right[0], last), (*wrong, last), (*right[2], last)), "gloo")
    facts = facts_of_run(run)
    proposals = list(synchronization(facts))
    assert proposals
    for proposal in proposals:
        (after,) = check_hypotheses(facts, [renamed(proposal, 1, confidence=0.9)])
        assert after.finding.confidence == 0.9
        assert "another rank than the one that waits" in told(after)[0]


@pytest.mark.parametrize("queued", [False, True])
def test_what_follows_tells_left_out_from_called_otherwise(queued: bool) -> None:
    calls = tuple(Action("all_reduce", 0, site=10 + n, numel=n + 1) for n in range(6))
    skipped = (*calls[:2], *calls[3:])
    run = simulate(program_of(calls, calls, skipped, calls), "nccl", ahead=9 if queued else 1)
    facts = facts_of_run(run)
    (after,) = check_hypotheses(facts, synchronization(facts))
    assert (after.finding.cause, after.finding.culprits) == (Cause.SKIPPED_COLLECTIVE, [2])
    # With nothing behind it, it may have called the wrong one as well.
    others = [cause for cause, _, _ in after.alternatives]
    assert others == ([] if queued else [Cause.COLLECTIVE_MISMATCH])


def test_a_class_of_ranks_is_simulated_once() -> None:
    size = 2048
    group = ProgramGroup("0", tuple(range(size)), "default_pg")
    run = simulate(Program((group,), ((STEP[0],) * 2,) * size), "nccl", stops={7: 1})
    facts = facts_of_run(run)
    (proposal,) = synchronization(facts)
    waiters = waiting_for(facts.graph, [7])
    assert len(waiters) == size - 1
    assert len(representatives(facts.graph, [7], waiters)) < SIMULATED_RANKS
    (after,) = check_hypotheses(facts, [proposal])
    assert after.finding.culprits == [7] and "brings about what was found" in told(after)[0]


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_the_check_names_nobody_who_was_not_named(first: int) -> None:
    checked = 0
    for seed in range(first, first + 40):
        drawn = random_run(Random(seed), largest=12)
        if drawn is None or drawn.fault is None:
            continue
        facts = facts_of(drawn.dumps(), drawn.run.program.world_size)
        before = list(synchronization(facts))
        for was, now in zip(before, check_hypotheses(facts, before), strict=True):
            named = set(now.finding.culprits)
            assert named and named <= set(was.finding.culprits), seed
            if now.finding.confidence > was.finding.confidence:
                assert len(named) == 1 and named == set(drawn.fault.culprits), seed
            checked += bool(told(now))
    assert checked > 3


@pytest.mark.parametrize("kind", sorted(set(FAULTS) - NCCL_ONLY))
def test_each_kind_of_fault_reproduces(kind: str) -> None:
    """Who is rightly accused keeps nearly always what confidence there was."""
    kept = lost = 0
    for seed in range(60):
        random = Random(seed)
        fault = make_fault(random_program(random, world=4), kind, random.randrange(4), random)
        run = simulate(fault.program, "gloo", stops=fault.stops) if fault is not None else None
        if fault is None or run is None or not run.stuck:
            continue
        facts = facts_of_run(run)
        before = list(synchronization(facts))
        for was, now in zip(before, check_hypotheses(facts, before), strict=True):
            if set(was.finding.culprits) == fault.culprits:
                kept += now.finding.confidence >= was.finding.confidence
                lost += now.finding.confidence < was.finding.confidence
    assert lost <= kept / 20, (kept, lost)


def test_a_size_stays_what_it_is_where_another_rank_differs_as_well() -> None:
    """To leave the call out would free all from both differences."""
    right = (Action("all_reduce", 0, site=10, numel=8), Action("all_reduce", 0, site=11, numel=8))
    size, dtype = replace(right[0], numel=9), replace(right[1], dtype="Half")
    ranks = (right, (right[0], dtype), (size, right[1]), right)
    facts = facts_of_run(simulate(program_of(*ranks), "nccl"))
    (after,) = check_hypotheses(facts, synchronization(facts))
    assert (after.finding.cause, after.finding.culprits) == (Cause.SIZE_MISMATCH, [2])
    assert "calls of other ranks differ as well" in told(after)[0]
