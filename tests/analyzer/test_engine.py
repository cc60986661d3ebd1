"""The engine's promise: a heuristic that fails costs itself only, and is named."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from hanglab.analyzer import engine, registry
from hanglab.analyzer.catalogue import HEURISTICS
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.analyzer.proposal import Heuristic, Proposal
from hanglab.analyzer.verdict import Cause, Status
from hanglab.recorder.case.records import Clock, Exit

AT = Clock(1_000, 1_000)


def broken(facts: CaseFacts) -> Iterator[Proposal]:
    raise ZeroDivisionError("no rank was late")
    yield


def foreign(facts: CaseFacts) -> list[object]:
    return [{"cause": "crash"}]


def ended(*signals: int | None) -> CaseFacts:
    """A Case of ranks that ended by these signals, None for success."""
    ranks = {
        rank: RankView(rank, exit=Exit(AT, None if number else 0, number))
        for rank, number in enumerate(signals)
    }
    return CaseFacts(WaitForGraph(ranks=tuple(ranks), expected=tuple(ranks)), ranks, case=True)


def install(monkeypatch: pytest.MonkeyPatch, *more: tuple[str, Heuristic]) -> None:
    own = registry.heuristics()
    monkeypatch.setattr(engine, "heuristics", lambda: (*more, *own))


def test_the_other_heuristics_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, ("mine", broken))
    verdict = engine.conclude(ended(None, 9))
    assert (verdict.cause, verdict.culprits) == (Cause.CRASH, [1])
    (unusable,) = verdict.inputs.unusable
    assert unusable.file == "heuristic mine"
    assert unusable.reason == "ZeroDivisionError: no rank was late"


def test_evidence_that_is_judged_again_names_a_heuristic_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, ("mine", broken))
    known = ended(None, 9)
    engine.conclude(known)
    (unusable,) = engine.conclude(known).inputs.unusable
    assert unusable.file == "heuristic mine"


@pytest.mark.parametrize("heuristic", [broken, foreign])
def test_a_job_that_one_could_not_look_at_is_not_called_healthy(
    monkeypatch: pytest.MonkeyPatch, heuristic: Heuristic
) -> None:
    assert engine.conclude(ended(None, None)).status is Status.HEALTHY
    install(monkeypatch, ("mine", heuristic))
    verdict = engine.conclude(ended(None, None))
    assert verdict.status is Status.INCONCLUSIVE
    assert [unusable.file for unusable in verdict.inputs.unusable] == ["heuristic mine"]
    assert verdict.advice


def test_one_that_cannot_be_imported_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = EntryPoint("mine", "no_such_module_anywhere:find", HEURISTICS)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    registry.heuristics.cache_clear()
    try:
        verdict = engine.conclude(ended(None, None))
    finally:
        registry.heuristics.cache_clear()
    assert verdict.status is Status.INCONCLUSIVE
    (unusable,) = verdict.inputs.unusable
    assert "no_such_module_anywhere" in unusable.reason
