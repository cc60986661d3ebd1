"""Groups of one description show what the members of another were to call."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest
from graph_rows import Row, columns

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.verdict import Cause, Finding

FORWARD, EVALUATION = 10, 57


def job(
    sizes: Sequence[int],
    went_on: Collection[int],
    description: str = "mp",
    other_stage: Collection[int] = (),
) -> list[Finding]:
    """Groups of these sizes that evaluate for the first time; some ranks go on instead.

    Those of the ``other_stage`` have a call of their own before all others.
    """
    dumps, first = [], 0
    for group, size in enumerate(sizes, start=1):
        ranks = range(first, first + size)
        first += size
        parted = not set(ranks).isdisjoint(went_on)
        members = {"0": range(sum(sizes)), str(group): ranks}
        for rank in ranks:
            mine = [Row("all_reduce", n, group=str(group), line=FORWARD) for n in range(1, 5)]
            fifth = Row("all_reduce", 5, group=str(group), line=FORWARD, done=not parted)
            if group in other_stage:
                mine[0] = replace(mine[0], line=5)
            elif rank not in went_on:
                fifth = replace(fifth, line=EVALUATION, inputs=((2,),))
            mine.append(fifth)
            if not parted:
                mine.append(Row("all_reduce", 6, group=str(group), line=FORWARD))
                mine.append(Row("all_reduce", 1, line=80, done=False))
            descriptions = {str(group): description}
            dumps.append(columns(rank, mine, members=members, descriptions=descriptions))
    return synchronization_findings(build_wait_for_graph(dumps))


@pytest.mark.parametrize(
    ("sizes", "went_on"),
    [([2] * 4, [3]), ([2] * 4, [0]), ([4] * 4, [2, 3]), ([4] * 4, [5, 6, 7]), ([4] * 3, [9])],
)
def test_who_went_on_is_told_by_those_who_all_made_the_call(
    sizes: list[int], went_on: list[int]
) -> None:
    (finding,) = job(sizes, went_on)
    assert (finding.cause, finding.culprits) == (Cause.SKIPPED_COLLECTIVE, went_on)


@pytest.mark.parametrize("description", ["", "undefined"])
def test_groups_without_a_description_tell_nothing_of_each_other(description: str) -> None:
    (finding,) = job([2] * 4, [3], description)
    assert finding.culprits == [2, 3] and finding.confidence <= 0.5
    (finding,) = job([4] * 4, [5, 6, 7], description)
    assert finding.culprits == [4]  # the minority of its own group


def test_more_ranks_that_went_on_than_made_the_call_are_not_overruled() -> None:
    (finding,) = job([2, 8], [3, 4, 5, 6, 7, 8])
    assert finding.culprits == [2, 9]


def test_groups_of_another_stage_have_other_numbers() -> None:
    """Their fifth call is the one that went on: by one call more before it, and not by a vote."""
    (finding,) = job([2] * 4, [3], other_stage=[1, 3, 4])
    assert finding.culprits == [2, 3] and finding.confidence <= 0.5
    (finding,) = job([2] * 4, [3], other_stage=[3, 4])
    assert finding.culprits == [3]
