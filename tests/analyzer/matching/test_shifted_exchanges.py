"""Exchanges of sizes that the data gives, behind one that a rank left out, or made once more."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from graph_rows import Row, columns

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause

RANKS = 5
#: Exchanges that ended, before the one that does not.
BEFORE = 20
#: Elements that a rank gives, and takes.
Sizes = tuple[int, int]


def drawn(count: int, most: int = 40, seed: int = 7) -> list[list[Sizes]]:
    """For each exchange what each rank gives to all, and takes of all."""
    random, found = Random(seed), []
    for _ in range(count):
        sent = [[random.randrange(most) for _ in range(RANKS)] for _ in range(RANKS)]
        found.append([(sum(sent[r]), sum(one[r] for one in sent)) for r in range(RANKS)])
    return found


def told(calls: Sequence[Sequence[Sizes]]) -> tuple[Cause | None, list[int]]:
    dumps = []
    for rank, mine in enumerate(calls):
        rows = [
            Row("all_to_all", number, "1", number <= BEFORE, ((given,),), ((taken,),), line=16)
            for number, (given, taken) in enumerate(mine, start=1)
        ]
        dumps.append(columns(rank, rows, members={"1": range(RANKS)}))
    (found,) = synchronization_findings(build_wait_for_graph(dumps))
    return found.cause, found.culprits


@pytest.mark.parametrize("odd", [0, 3])
@pytest.mark.parametrize("ahead", [2, 3])
def test_the_one_whose_calls_fit_one_number_off_left_one_out(odd: int, ahead: int) -> None:
    exchanges = drawn(BEFORE + 1 + ahead)
    calls = [[one[rank] for one in exchanges] for rank in range(RANKS)]
    del calls[odd][BEFORE]
    assert told(calls) == (Cause.SKIPPED_COLLECTIVE, [odd])


@pytest.mark.parametrize("more", [False, True])
def test_one_number_that_fits_is_too_few_unless_its_rank_alone_is_behind(more: bool) -> None:
    """Of ten that might have, by each rank and either way, one does so by chance now and then."""
    exchanges = drawn(BEFORE + 2)
    calls = [[one[rank] for one in exchanges] for rank in range(RANKS)]
    del calls[3][BEFORE]
    if more:  # As where it has gone on to something else of the same sizes.
        calls[3].append(calls[3][0])
    expected = (Cause.SPLIT_MISMATCH, list(range(RANKS)))
    assert told(calls) == (expected if more else (Cause.SKIPPED_COLLECTIVE, [3]))


@pytest.mark.parametrize("odd", [0, 3])
def test_the_one_whose_calls_fit_one_number_off_made_one_more(odd: int) -> None:
    exchanges = drawn(BEFORE + 3)
    calls = [[one[rank] for one in exchanges] for rank in range(RANKS)]
    calls[odd].insert(BEFORE, calls[odd][BEFORE - 1])
    assert told(calls) == (Cause.COLLECTIVE_MISMATCH, [odd])


@pytest.mark.parametrize("ahead", [0, 1, 3])
@pytest.mark.parametrize("held", [False, True])
def test_one_of_a_wrong_size_has_left_none_out(ahead: int, held: bool) -> None:
    """Its totals fit under no other number, whether its host has gone on or not."""
    exchanges = drawn(BEFORE + 1 + ahead)
    calls = [[one[rank] for one in exchanges] for rank in range(RANKS)]
    given, taken = calls[2][BEFORE]
    calls[2][BEFORE] = given + 3, taken
    if held:
        del calls[2][BEFORE + 1 :]
    assert told(calls) == (Cause.SPLIT_MISMATCH, list(range(RANKS)))


@pytest.mark.parametrize("seed", range(60))
def test_few_tokens_fit_by_chance(seed: int) -> None:
    """Where a size of any rank fits under many numbers, that one does so tells nothing."""
    exchanges = drawn(BEFORE + 4, most=3, seed=seed)
    calls = [[one[rank] for one in exchanges] for rank in range(RANKS)]
    given, taken = calls[2][BEFORE]
    calls[2][BEFORE] = given + 1, taken
    assert told(calls) == (Cause.SPLIT_MISMATCH, list(range(RANKS)))


def test_of_equal_sizes_every_number_fits() -> None:
    """They would fit as well if anybody's were moved."""
    calls = [[(40, 40)] * (BEFORE + 3) for _ in range(RANKS)]
    calls[1][BEFORE] = 43, 40
    del calls[1][BEFORE + 1 :]
    cause, culprits = told(calls)
    assert cause is not Cause.SKIPPED_COLLECTIVE and 1 in culprits
