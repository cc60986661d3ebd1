"""Models that differ from rank to rank, as DistributedDataParallel tells it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from views import job, raised, user, view

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.matching.calls import ProcessGroup
from hanglab.analyzer.verdict import Cause, Status, Verdict


def views_of(texts: Mapping[int, str], size: int) -> list[RankView]:
    return [
        raised(view(rank), "RuntimeError", texts[rank], user(17), at=rank)
        if rank in texts
        else view(rank)
        for rank in range(size)
    ]


def verdict(texts: Mapping[int, str], size: int) -> Verdict:
    return conclude(job(views_of(texts, size), trigger="exit"))


@pytest.mark.parametrize("odd", [0, 1, 3])
def test_of_numbers_of_parameters_the_one_that_has_another(odd: int) -> None:
    """Each is told the first that differs from it."""
    counts = {rank: 6 if rank == odd else 4 for rank in range(4)}
    texts = {}
    for rank, count in counts.items():
        other = next(one for one in counts if counts[one] != count)
        texts[rank] = (
            f"DDP expects same model across all ranks, but Rank {rank} has {count} params, "
            f"while rank {other} has inconsistent {counts[other]} params."
        )
    found = verdict(texts, 4)
    assert (found.status, found.cause) == (Status.FAILED, Cause.SIZE_MISMATCH)
    assert found.culprits == [odd]
    assert f"rank {odd} has 6 parameters, the others 4 parameters" in found.summary
    assert "same model" in found.findings[0].advice


def unlike(ranks: list[int]) -> dict[int, str]:
    return {
        rank: f"[{rank}]: params[2] in this process with sizes [4, 8] appears not to match sizes "
        "of the same param in process 0."
        for rank in ranks
    }


@pytest.mark.parametrize(
    ("raising", "culprits"), [([2], [2]), ([1, 2, 3], [0]), ([1, 3], [0, 1, 2, 3])]
)
def test_of_sizes_all_that_differ_from_the_first_raise(
    raising: list[int], culprits: list[int]
) -> None:
    found = verdict(unlike(raising), 4)
    assert (found.cause, found.culprits) == (Cause.SIZE_MISMATCH, culprits)
    assert (found.confidence > 0.9) == (len(culprits) == 1)


def test_numbers_that_are_of_no_rank_tell_of_none() -> None:
    text = "DDP expects same model across all ranks, but Rank 7 has 1 params, "
    found = verdict({1: f"{text}while rank 0 has inconsistent 2 params."}, 2)
    assert Cause.SIZE_MISMATCH not in {one.cause for one in found.findings}


@pytest.mark.parametrize(
    ("members", "raising", "odd"),
    [
        ((1, 3, 5, 7), (3, 5, 7), [1]),
        ((1, 3, 5, 7), (5,), [5]),
        ((4, 5, 6, 7), (5, 6, 7), [4]),
        # Of the whole job, too, these would be the numbers: in one group they are the odd ones.
        ((0, 1, 2, 3), (1, 2, 3), [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_numbers_are_those_within_the_group_that_compares(
    members: tuple[int, ...], raising: tuple[int, ...], odd: list[int]
) -> None:
    """Two replicas of four ranks each, of which one has a rank with another model."""
    told = unlike([members.index(rank) for rank in raising])
    known = job(views_of({members[at]: text for at, text in told.items()}, 8), trigger="exit")
    rest = tuple(rank for rank in range(8) if rank not in members)
    known.graph.groups += [ProcessGroup("1", members, "dp"), ProcessGroup("2", rest, "dp")]
    found = conclude(known)
    assert (found.cause, found.culprits) == (Cause.SIZE_MISMATCH, odd)
    assert (found.confidence > 0.9) == (len(odd) == 1)


def test_strides_are_no_sizes() -> None:
    text = "[1]: params[2] in this process with strides [4, 1] appears not to match strides of the"
    found = verdict({1: f"{text} same param in process 0."}, 3)
    assert Cause.SIZE_MISMATCH not in {one.cause for one in found.findings}


def test_where_all_that_are_known_have_the_same_nobody_is_odd() -> None:
    found = verdict(unlike([0, 1, 2]), 3)
    assert Cause.SIZE_MISMATCH not in {one.cause for one in found.findings}
