"""What torch's own comparison of collectives says of who differs."""

from __future__ import annotations

import pytest
from views import job, raised, user, view

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.verdict import Cause, Status

ALL_REDUCE = "OpType=ALLREDUCE, TensorShape=[20, 10], TensorDtypes=Float"
REST = "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, layout=Strided)"
DIFFERING = {
    Cause.COLLECTIVE_MISMATCH: ALL_REDUCE.replace("ALLREDUCE", "REDUCE"),
    Cause.SIZE_MISMATCH: ALL_REDUCE.replace("20, 10", "20, 11"),
    Cause.DTYPE_MISMATCH: ALL_REDUCE.replace("=Float", "=Half"),
}


def told(rank: int, calls: dict[int, str], line: int = 20) -> RankView:
    """Each is told what it has, and what the first that differs from that has."""
    other = next(one for one in calls if calls[one] != calls[rank])
    have = [
        f"Rank {one} is running collective: CollectiveFingerPrint(SequenceNumber=77, {calls[one]}, "
        f"{REST})"
        for one in (rank, other)
    ]
    text = f"Detected mismatch between collectives on ranks. {', but '.join(have)}"
    return raised(view(rank), "RuntimeError", f"{text}.Collectives differ", user(line), at=rank)


@pytest.mark.parametrize("cause", DIFFERING)
@pytest.mark.parametrize("odd", [0, 2])
def test_the_one_that_differs_from_most_is_named(odd: int, cause: Cause) -> None:
    calls = {rank: DIFFERING[cause] if rank == odd else ALL_REDUCE for rank in range(4)}
    views = [told(rank, calls, 30 if rank == odd else 20) for rank in calls]
    verdict = conclude(job(views, trigger="exit"))
    assert (verdict.status, verdict.cause, verdict.culprits) == (Status.FAILED, cause, [odd])
    assert verdict.findings[0].location is not None
    assert verdict.findings[0].location.line == 30


@pytest.mark.parametrize("size", [2, 4])
def test_half_against_half_names_all_at_even_odds(size: int) -> None:
    other = DIFFERING[Cause.SIZE_MISMATCH]
    calls = {rank: other if rank < size // 2 else ALL_REDUCE for rank in range(size)}
    verdict = conclude(job([told(rank, calls) for rank in calls], trigger="exit"))
    assert verdict.culprits == list(range(size))
    assert verdict.confidence <= 0.5


def test_who_said_nothing_may_have_called_what_the_few_did() -> None:
    """Of four, two tell what a third has, and nothing is known of the last."""
    calls = {rank: DIFFERING[Cause.SIZE_MISMATCH] if rank == 1 else ALL_REDUCE for rank in range(3)}
    views = [told(0, calls), view(1), told(2, calls), view(3)]
    (finding,) = conclude(job(views, trigger="exit")).findings
    assert finding.culprits == [0, 1, 2] and finding.confidence <= 0.5


def test_numbers_of_another_group_accuse_nobody() -> None:
    """Ranks 2 and 3 count as 0 and 1 in a group of theirs."""
    calls = {0: ALL_REDUCE, 1: DIFFERING[Cause.SIZE_MISMATCH]}
    views = [told(rank, calls) for rank in calls]
    for one in views:
        one.rank += 2
    verdict = conclude(job([view(0), view(1), *views], trigger="exit"))
    assert Cause.SIZE_MISMATCH not in {finding.cause for finding in verdict.findings}
