"""Summaries merge in any order and grouping to the same graph, in one process or in many."""

from __future__ import annotations

import pickle
from random import Random

import pytest
from random_runs import random_run

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.graph import graph_of_summaries
from hanglab.analyzer.matching.merging import MergedSummaries, merge_all
from hanglab.analyzer.matching.summarising import summarise


@pytest.mark.parametrize("seed", range(40))
def test_merging_is_associative_and_commutative(seed: int) -> None:
    random = Random(seed)
    drawn = random_run(random, largest=16)
    if drawn is None:
        return
    dumps = {dump.rank: dump for dump in drawn.dumps()}
    expected = range(drawn.run.program.world_size)
    straight = graph_of_summaries(
        merge_all(map(summarise, dumps.values())), dumps.get, expected=expected
    )
    ranks = list(dumps)
    random.shuffle(ranks)
    pieces: list[MergedSummaries] = []
    for rank in ranks:
        summary = pickle.loads(pickle.dumps(summarise(dumps[rank])))
        pieces.append(merge_all([summary]))
    while len(pieces) > 1:
        at = random.randrange(len(pieces) - 1)
        pieces[at : at + 2] = [merge_all(pieces[at : at + 2])]
    if not pieces:
        return
    shuffled = graph_of_summaries(pieces[0], dumps.get, expected=expected)
    assert synchronization_findings(shuffled) == synchronization_findings(straight)
    assert shuffled.sinks == straight.sinks
    assert shuffled.waits == straight.waits
    assert shuffled.agreed == straight.agreed


def test_a_summary_is_small() -> None:
    drawn = next(t for seed in range(99) if (t := random_run(Random(seed))) is not None)
    for dump in drawn.dumps():
        assert len(pickle.dumps(summarise(dump))) < 20_000
