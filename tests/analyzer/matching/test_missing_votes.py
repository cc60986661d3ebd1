"""Deviating ranks are left open where missing votes could turn the majority."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from graph_rows import Row, columns, dump_object, world

from hanglab.analyzer.causes.graph_findings import open_finding, synchronization_findings
from hanglab.analyzer.engine import analyze
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.analyzer.matching.calls import UnknownCall
from hanglab.analyzer.program.torch_pickle import torch_pickle
from hanglab.analyzer.verdict import Cause, Status, Verdict

Step = Sequence[tuple[str, int, int]]
STEP: Step = (("all_reduce", 8, 10), ("broadcast", 4, 11), ("all_reduce", 2, 12))


def rows(*calls: tuple[str, int, int]) -> list[Row]:
    """All finished but the last; a call is an operation, its elements and its line."""
    return [
        Row(op, seq, inputs=((size,),), line=line, done=seq < len(calls))
        for seq, (op, size, line) in enumerate(calls, start=1)
    ]


USUAL = rows(STEP[0])
OTHER = rows(("all_gather", 8, 30))
STEADY = rows(*STEP, *STEP, STEP[0])
JUMPED = rows(*STEP, *STEP, STEP[1])
#: After its last step, to where nobody has been before.
BEYOND = rows(*STEP, *STEP, ("barrier", 1, 40))


def graph_of(dumps: Mapping[int, list[Row]], size: int) -> WaitForGraph:
    return build_wait_for_graph(columns(r, mine, members=world(size)) for r, mine in dumps.items())


def verdict(folder: Path, dumps: Mapping[int, list[Row]], size: int, **details: object) -> Verdict:
    for rank, mine in dumps.items():
        given = {"members": world(size), **details}
        (folder / f"rank_{rank}").write_bytes(torch_pickle(dump_object(mine, **given)))  # type: ignore[arg-type]
    return analyze(folder)


@pytest.mark.parametrize("lost", [0, 3])
def test_two_against_one_is_open_where_a_fourth_dump_is_lost(tmp_path: Path, lost: int) -> None:
    dumps = {0: USUAL, 1: USUAL, 2: OTHER, 3: USUAL}
    del dumps[lost]
    found = verdict(tmp_path, dumps, 4)
    assert (found.status, found.culprits, found.findings) == (Status.INCONCLUSIVE, [], [])
    assert found.inputs.would_decide == [f"rank {lost}'s dump"]
    first, second = (r for r in (0, 1, 3) if r != lost)
    assert found.summary == (
        f"Under number 1 of group default_pg ranks {first} and {second} called all_reduce at "
        "/srv/train.py:10 (step) (in [[8]] Float, out [[8]] Float), rank 2 called all_gather at "
        "/srv/train.py:30 (step) (in [[8]] Float, out [[8]] Float), and who of them is wrong "
        f"cannot be told without rank {lost}'s dump."
    )
    assert found.advice == f"Get rank {lost}'s dump."
    assert found.collective is not None and found.collective.seq == 1


def test_one_against_one_is_open_where_a_third_dump_is_lost() -> None:
    graph = graph_of({0: USUAL, 1: OTHER}, 3)
    assert synchronization_findings(graph) == []
    question = open_finding(graph)
    assert question is not None and question.status is Status.INCONCLUSIVE
    assert "rank 2's dump" in question.summary


def test_a_majority_of_all_members_needs_no_lost_dump() -> None:
    (finding,) = synchronization_findings(graph_of({0: USUAL, 1: USUAL, 2: USUAL, 3: OTHER}, 5))
    assert (finding.cause, finding.culprits) == (Cause.SKIPPED_COLLECTIVE, [3])


def test_a_tie_of_all_members_names_all_who_differ() -> None:
    (finding,) = synchronization_findings(graph_of({0: USUAL, 1: USUAL, 2: OTHER, 3: OTHER}, 4))
    assert (finding.culprits, finding.confidence) == ([0, 1, 2, 3], 0.5)


def test_who_has_yet_to_come_has_no_vote() -> None:
    """Rank 3 is known to stand before the number: it agrees with nobody."""
    (finding,) = synchronization_findings(graph_of({0: USUAL, 1: USUAL, 2: OTHER, 3: []}, 4))
    assert finding.culprits == [2]


@pytest.mark.parametrize(("steady", "lost"), [((0, 1), (3,)), ((0,), (1, 3))])
def test_the_order_kept_before_decides_without_the_lost_dump(
    steady: tuple[int, ...], lost: tuple[int, ...]
) -> None:
    graph = graph_of({**dict.fromkeys(steady, STEADY), 2: JUMPED}, 4)
    (finding,) = synchronization_findings(graph)
    assert (finding.cause, finding.culprits) == (Cause.SKIPPED_COLLECTIVE, [2])


def test_who_left_the_common_order_may_have_left_it_with_most() -> None:
    """Rank 0 takes a step more than its peers; with rank 3 they are three against it."""
    whole = {0: STEADY, 1: BEYOND, 2: BEYOND, 3: BEYOND}
    (finding,) = synchronization_findings(graph_of(whole, 4))
    assert finding.culprits == [0]
    for lost in range(1, 4):
        left = {rank: mine for rank, mine in whole.items() if rank != lost}
        assert synchronization_findings(graph_of(left, 4)) == []
    assert synchronization_findings(graph_of({0: STEADY, 1: BEYOND}, 4)) == []


def test_those_who_jumped_ahead_may_be_most() -> None:
    """Two of three left something out, and a fourth may have, too."""
    assert synchronization_findings(graph_of({0: STEADY, 1: JUMPED, 2: JUMPED}, 4)) == []


def test_a_ring_that_begins_later_asks_for_a_longer_buffer(tmp_path: Path) -> None:
    usual = [Row("all_reduce", n, inputs=((n,),), line=10 + n) for n in range(1, 4)]
    odd = [*usual[:2], Row("all_gather", 3, line=77)]
    last = [Row("barrier", 1, group="1"), Row("all_reduce", 4, line=14, done=False)]
    members = {"0": range(3), "1": range(3)}
    graph = build_wait_for_graph(
        [
            columns(0, [*usual, *last], members=members),
            columns(1, [*odd, *last], members=members),
            columns(2, last, members=members, first_record=3),
        ]
    )
    (divergence,) = graph.divergences
    assert divergence.unknown_calls == {2: UnknownCall.OVERWRITTEN}
    assert synchronization_findings(graph) == []
    question = open_finding(graph)
    assert question is not None
    assert question.summary.endswith(
        "who of them is wrong cannot be told without a longer buffer of rank 2 "
        "(TORCH_FR_BUFFER_SIZE, in older torch TORCH_NCCL_TRACE_BUFFER_SIZE) that still holds "
        "number 3."
    )


def test_a_dump_of_active_entries_has_no_vote_in_what_it_left_out() -> None:
    before = [Row("all_reduce", 1), Row("all_reduce", 2)]
    odd = [Row("all_reduce", 1), Row("all_gather", 2)]
    waits = Row("all_reduce", 3, done=False)
    status = {0: (3, 2)}
    graph = build_wait_for_graph(
        [
            columns(0, [*before, waits], members=world(3), status=status),
            columns(1, [*odd, waits], members=world(3), status=status),
            columns(2, [waits], members=world(3), status=status, first_record=2),
        ]
    )
    assert [d.unknown_calls for d in graph.divergences] == [{2: UnknownCall.FINISHED}]
    assert synchronization_findings(graph) == []


def test_lines_that_shifted_are_open_where_dumps_are_lost() -> None:
    """One operation from every line: nothing fails until the end, when one is left over."""
    pair: Step = (("all_reduce", 8, 10), ("all_reduce", 8, 20))
    usual = [Row(r.op, r.seq, inputs=r.inputs, line=r.line) for r in rows(*pair, *pair, *pair)]
    longer = rows(*pair, *pair, ("all_reduce", 8, 77), *pair)
    for size, culprits in ((2, [0, 1]), (3, None), (4, None)):
        named = [
            f.culprits for f in synchronization_findings(graph_of({0: usual, 1: longer}, size))
        ]
        assert named == ([culprits] if culprits else [])
    for size, named in ((3, [[1]]), (4, [])):  # of four, the lost one may have gone with it
        two_of_three = graph_of({0: usual, 1: longer, 2: usual}, size)
        assert [f.culprits for f in synchronization_findings(two_of_three)] == named
    two_longer = graph_of({0: longer, 1: longer, 2: usual}, 4)
    assert synchronization_findings(two_longer) == []
    (divergence,) = two_longer.divergences
    assert divergence.undecided


def test_lines_that_shifted_to_where_nobody_has_been_are_open() -> None:
    """Ranks 2 and 4 of seven take a step more; the others left the loop for a line of its own."""
    step: Step = (("barrier", 1, 10), ("all_reduce", 4, 11))
    end: Step = (("barrier", 1, 90), ("all_reduce", 4, 91))
    usual = [
        Row(r.op, r.seq, inputs=r.inputs, line=r.line) for r in rows(*step, *step, *step, *end)
    ]
    longer = rows(*step, *step, *step, *step, *end)
    longer = [Row(r.op, r.seq, inputs=r.inputs, line=r.line, done=r.seq < 9) for r in longer]
    whole = {rank: longer if rank in (2, 4) else usual for rank in range(7)}
    (finding,) = synchronization_findings(graph_of(whole, 7))
    assert finding.culprits == [2, 4]
    for size in (3, 4, 5):  # As many may have gone either way, each by one branch.
        fewer = {rank: mine for rank, mine in whole.items() if rank < size}
        assert [2, 4] not in [f.culprits for f in synchronization_findings(graph_of(fewer, size))]
    for lost in (0, 1, 3):
        left = {rank: mine for rank, mine in whole.items() if rank not in (lost, 5, 6)}
        assert synchronization_findings(graph_of(left, 5)) == []


def lists(*outputs: int) -> list[Row]:
    """An all_to_all of a list, two elements to each; ``outputs`` is what is taken of each."""
    taken = tuple((count,) for count in outputs)
    return [Row("all_to_all", 1, done=False, inputs=((2,), (2,), (2,)), outputs=taken)]


def test_splits_that_do_not_fit_are_open_where_a_third_could_tell_whose() -> None:
    whole = {0: lists(2, 2, 2), 1: lists(3, 2, 3), 2: lists(2, 2, 2)}
    (finding,) = synchronization_findings(graph_of(whole, 3))
    assert (finding.cause, finding.culprits) == (Cause.SPLIT_MISMATCH, [1])
    del whole[2]
    graph = graph_of(whole, 3)
    assert synchronization_findings(graph) == []
    question = open_finding(graph)
    assert question is not None and "rank 2's dump" in question.summary


class TestGlooListsNoMembers:
    """Only the shapes of what they gather tell how many ranks there are."""

    GATHERED = Row("all_gather", 1, inputs=((4,),), outputs=((4, 4),))

    def graph(self, dumps: Mapping[int, list[Row]]) -> WaitForGraph:
        return build_wait_for_graph(columns(r, mine, backend="gloo") for r, mine in dumps.items())

    def test_two_against_one_may_be_two_against_two(self) -> None:
        graph = self.graph({0: USUAL, 1: USUAL, 2: OTHER})
        assert synchronization_findings(graph) == []
        question = open_finding(graph)
        assert question is not None
        assert question.advice == "Get the dumps of any ranks after 2."

    def test_three_against_one_are_the_majority(self) -> None:
        graph = self.graph({0: USUAL, 1: USUAL, 2: OTHER, 3: USUAL})
        assert [f.culprits for f in synchronization_findings(graph)] == [[2]]

    @pytest.mark.parametrize("size", [3, 4])
    def test_a_gathering_tells_how_many_there_are(self, size: int) -> None:
        gathered = Row("all_gather", 1, inputs=((4,),), outputs=((size, 4),))
        usual, other = Row("all_reduce", 2, done=False), Row("broadcast", 2, done=False)
        graph = self.graph({0: [gathered, usual], 1: [gathered, usual], 2: [gathered, other]})
        assert graph.expected == tuple(range(size))
        assert not graph.world_size_unknown
        named = [f.culprits for f in synchronization_findings(graph)]
        assert named == ([[2]] if size == 3 else [])
