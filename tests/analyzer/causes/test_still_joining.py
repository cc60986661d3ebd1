"""A job of which every rank is still in init_process_group."""

from __future__ import annotations

import pytest
from views import C10D, ended, job, user, view

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.verdict import Cause, Status
from hanglab.recorder.case.records import Movement, StackFrame


def joining(rank: int) -> RankView:
    return view(
        rank,
        StackFrame("_create_c10d_store", "/x/site-packages/torch/distributed/rendezvous.py", 190),
        StackFrame("init_process_group", C10D, 1700),
        user(7, "main"),
        has_dump=False,
    )


def unformed(views: list[RankView], expected: int) -> CaseFacts:
    known = job(views)
    known.graph.groups.clear()
    known.graph.waits.clear()
    known.graph.sinks.clear()
    known.inputs.missing_ranks = list(range(len(views), expected))
    return known


def test_all_ranks_are_said_to_be_there() -> None:
    verdict = conclude(unformed([joining(rank) for rank in range(3)], 3))
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])
    assert verdict.summary.startswith("All ranks are still in init_process_group")
    assert verdict.victims == [0, 1, 2]
    assert [e.rank for e in verdict.evidence] == [0, 1, 2]
    assert "train.py:7" in verdict.evidence[0].detail
    assert "MASTER_ADDR" in verdict.advice
    assert verdict.inputs.would_decide


@pytest.mark.parametrize("elsewhere", ["ended", "training", "never heard of"])
def test_not_where_one_is_elsewhere(elsewhere: str) -> None:
    views = [joining(0), joining(1)]
    if elsewhere == "ended":
        views.append(ended(joining(2), code=0))
    elif elsewhere == "training":
        views.append(view(2, user(30)))
    verdict = conclude(unformed(views, 3))
    assert "All ranks" not in verdict.summary


def test_retries_are_no_progress() -> None:
    views = [joining(rank) for rank in range(3)]
    for mine in views:
        mine.movement = Movement(quiet_s=0.1, longest_pause_s=0.1, cpu_share=0.0)
    known = job(views, trigger="request")
    known.graph.groups.clear()
    known.graph.waits.clear()
    known.graph.sinks.clear()
    assert not known.stuck
    assert conclude(known).status is Status.INCONCLUSIVE


@pytest.mark.parametrize(
    ("sizes", "culprits"),
    [((3, 4, 3), [1]), ((4, 4, 4, 2), [3]), ((2, 3), []), ((3, 3, 3), [])],
)
def test_who_was_told_another_number_of_ranks_than_most(
    sizes: tuple[int, ...], culprits: list[int]
) -> None:
    """Of two nobody knows whose number is right."""
    views = [joining(rank) for rank in range(len(sizes))]
    for one, size in zip(views, sizes, strict=True):
        assert one.process is not None
        one.process.world_size = size
    verdict = conclude(unformed(views, len(sizes)))
    assert verdict.culprits == culprits
    assert (verdict.cause is Cause.RENDEZVOUS) == bool(culprits)
