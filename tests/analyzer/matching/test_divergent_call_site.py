"""One rank goes where it never was: an evaluation, a look, a checkpoint of its own."""

from __future__ import annotations

import pytest
from test_divergence import Step, graph_of, rows

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.verdict import Cause

#: Gathers of the forward pass, of the backward pass, and a reduction.
STEP: Step = (
    ("all_gather", 8, 10),
    ("all_gather", 8, 10),
    ("all_gather", 8, 20),
    ("reduce", 8, 20),
)
#: The forward pass from another line.
LOOK: Step = (("all_gather", 8, 30), ("all_gather", 8, 30))


def test_the_rank_that_strayed_is_named_and_not_the_one_that_went_on() -> None:
    # What comes after the look is not the old order, shifted: it needs one gather less.
    stray = rows([*STEP, *STEP, *STEP, *LOOK, *STEP[1:3]])
    steady = rows([*STEP, *STEP, *STEP, *STEP])
    for ranks, culprit in (((stray, steady), 0), ((steady, stray), 1)):
        (finding,) = synchronization_findings(graph_of(*ranks))
        assert (finding.cause, finding.culprits) == (Cause.COLLECTIVE_MISMATCH, [culprit])
        assert finding.collective is not None and finding.collective.seq == 13


def test_nobody_strayed_where_both_left_their_ways() -> None:
    stray = rows([*STEP, *STEP, *STEP, *LOOK, ("reduce", 8, 31)])
    other = rows([*STEP, *STEP, *STEP, ("all_gather", 8, 40), ("all_gather", 8, 40), STEP[2]])
    (finding,) = synchronization_findings(graph_of(stray, other))
    assert finding.culprits == [0, 1]
    assert finding.confidence <= 0.5


def test_a_branch_on_the_rank_is_no_detour_where_the_ranks_meet_again() -> None:
    # Rank 0 logs from another line, in step with its peer; later the peer leaves something out.
    logging = (("all_gather", 8, 30), *STEP[1:])
    careful = rows([*STEP, *STEP, *logging, *STEP, *STEP[:3], ("reduce", 8, 20)])
    careless = rows([*STEP, *STEP, *STEP, *STEP, *STEP[:2], STEP[3]])
    (finding,) = synchronization_findings(graph_of(careful, careless))
    assert finding.culprits != [0]


@pytest.mark.parametrize("kinds", [(0, 0, 1, 2), (0, 1, 2, 0), (0, 0, 0, 1, 1, 2, 3, 3)])
def test_of_many_ways_nobody_is_told(kinds: tuple[int, ...]) -> None:
    """Those of two that meet, less than half of all, prove nothing."""
    ops = ("all_reduce", "broadcast", "all_gather", "reduce")
    ranks = [rows([("all_reduce", 8, 10)] * 40 + [(ops[kind], 8, 20 + kind)]) for kind in kinds]
    (finding,) = synchronization_findings(graph_of(*ranks))
    assert finding.culprits == [*range(len(kinds))] and finding.confidence <= 0.5


def test_where_each_leaves_out_layers_of_its_own_nobody_is_told() -> None:
    """Forward gathers at line 10, as many as the rank has layers; backward at line 20."""

    def layers(count: int) -> Step:
        back = (("all_gather", 8, 20), ("reduce", 8, 20))
        return (*(("all_gather", 8, 10),) * count, *back * count)

    (finding,) = synchronization_findings(
        graph_of(*(rows([*layers(count)][:18]) for count in (9, 8, 7, 7)))
    )
    assert finding.culprits == [0, 1, 2, 3] and finding.confidence <= 0.5
