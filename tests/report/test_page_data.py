"""What a page holds, by corpus entries whose truth is known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import data_of, entry_of_each_cause, unpacked

from hanglab.analyzer.engine import examine
from hanglab.harness.report.explanation.explaining import explain_examined
from hanglab.harness.report.explanation.parts import Explanation
from hanglab.harness.report.page.records import PageData, StackNode
from hanglab.harness.report.rank_ranges import named, ranges


@pytest.fixture(scope="module")
def skipped(tmp_path_factory: pytest.TempPathFactory) -> PageData:
    name = "local/skipped_collective.fault"
    return data_of(unpacked(name, tmp_path_factory.mktemp("skipped")))


def test_ranges() -> None:
    assert ranges([5, 0, 2, 3, 4]) == "0, 2-5"
    assert ranges([7, 8]) == "7, 8"
    assert ranges([]) == ""
    assert named([3]) == "rank 3"
    assert named([0, 1, 2]) == "ranks 0-2"


def test_ranks_that_stand_alike_are_one_class(skipped: PageData) -> None:
    culprit, rest = skipped.classes
    assert (culprit.ranks, culprit.role) == ([1], "culprit")
    assert (rest.shown, rest.role) == ("0, 2, 3", "waits")
    assert "broadcast" in culprit.doing and "all_reduce" in rest.doing


def test_timeline_has_a_row_for_each_rank_and_open_operations_reach_its_end(
    skipped: PageData,
) -> None:
    timeline = skipped.timeline
    assert timeline is not None
    assert [row.rank for row in timeline.rows] == [0, 1, 2, 3]
    columns = (timeline.row, timeline.activity, timeline.begin, timeline.length, timeline.seq)
    assert len({len(column) for column in columns}) == 1
    still = [
        (timeline.row[span], timeline.activities[timeline.activity[span]].name)
        for span in timeline.open
        if timeline.activities[timeline.activity[span]].kind == "operation"
    ]
    assert still == [(0, "all_reduce"), (1, "broadcast"), (2, "all_reduce"), (3, "all_reduce")]
    for span in timeline.open:
        assert timeline.begin[span] + timeline.length[span] == timeline.end_us
    assert [one.kind for one in timeline.moments].count("capture") == 1
    assert 0 <= min(timeline.begin) < 1000


def test_parts_of_one_collective_have_one_number(skipped: PageData) -> None:
    timeline = skipped.timeline
    assert timeline is not None
    parts: dict[int, set[int]] = {}
    for span, seq in enumerate(timeline.seq):
        if timeline.activities[timeline.activity[span]].kind == "operation":
            parts.setdefault(seq, set()).add(timeline.row[span])
    assert all(rows == {0, 1, 2, 3} for rows in parts.values())
    assert max(parts) == 11


def test_stacks_part_where_ranks_do(skipped: PageData) -> None:
    (tree,) = [tree for tree in skipped.stacks if tree.title == "Main threads"]
    leaves = list(_leaves(tree.root))
    assert sorted(leaf.ranks for leaf in leaves) == ["0, 2, 3", "1"]
    by_ranks = {leaf.ranks: leaf for leaf in leaves}
    assert any(user and "skipped_collective" in frame for frame, user in _frames(by_ranks["1"]))
    assert any("broadcast" in frame for frame, _ in _frames(by_ranks["1"]))
    assert tree.samples > 1 and tree.still == "0-3"


def test_those_who_wait_are_one_node_and_the_root_is_the_culprit(skipped: PageData) -> None:
    waits = skipped.waits
    ((waiter, awaited),) = [(edge.waiter, edge.awaited) for edge in waits.edges]
    assert waits.nodes[waiter].ranks == "0, 2, 3"
    assert (waits.nodes[awaited].ranks, waits.nodes[awaited].kind) == ("1", "root")
    assert waits.nodes[waiter].x < waits.nodes[awaited].x


def test_operations_stand_side_by_side_at_the_first_difference(skipped: PageData) -> None:
    side = skipped.side_by_side
    assert side is not None
    assert side.columns == ["ranks 0, 2, 3", "rank 1"]
    odd = [row for row in side.rows if row.difference]
    assert [(row.seq, row.difference) for row in odd] == [(11, "operation")]
    assert [cell.differs for cell in odd[0].cells] == [False, True]
    assert [row.seq for row in side.rows] == [7, 8, 9, 10, 11]


def test_a_ring_is_a_knot(tmp_path: Path) -> None:
    waits = data_of(unpacked("local/p2p_deadlock.fault", tmp_path)).waits
    knot = [number for number, node in enumerate(waits.nodes) if node.kind == "knot"]
    assert len(knot) >= 2
    inside = {(e.waiter, e.awaited) for e in waits.edges if {e.waiter, e.awaited} <= {*knot}}
    assert {waiter for waiter, _ in inside} == {awaited for _, awaited in inside} == {*knot}
    assert len({(waits.nodes[n].x, waits.nodes[n].y) for n in knot}) == len(knot)


def test_ranks_with_other_peers_are_not_told_of_as_one(tmp_path: Path) -> None:
    data = data_of(unpacked("local/p2p_deadlock.fault", tmp_path))
    (pair,) = [one for one in data.classes if one.ranks == [0, 1]]
    assert pair.doing.startswith("in send of default_pg, ")
    texts = {node.ranks: node.text for node in data.waits.nodes}
    assert texts["0"].startswith("in send to rank 1 of default_pg")
    assert texts["1"].startswith("in send to rank 0 of default_pg")


def test_a_page_does_not_ask_for_itself(tmp_path: Path) -> None:
    job = unpacked("local/busy_loop.fault", tmp_path)
    told = explain_examined(examine(job), job)
    assert [one.line for one in told.do_now] == [f"hanglab report {job}"]
    assert data_of(job).explanation.do_now == ()


def test_a_slow_job_has_scores_over_time_and_charts_of_its_host(tmp_path: Path) -> None:
    data = data_of(unpacked("local/slow_compute.fault", tmp_path))
    assert data.scores is not None
    (slow,) = data.verdict.culprits
    lowest = {
        rank: min(score for score in scores if score is not None)
        for rank, scores in zip(data.scores.ranks, data.scores.scores, strict=True)
    }
    assert min(lowest, key=lambda rank: lowest[rank]) == slow
    charts = {chart.title for host in data.hosts for chart in host.charts}
    assert "Processor used by each rank" in charts


def test_collections_and_waits_for_input_are_on_the_timeline(tmp_path: Path) -> None:
    kinds = {}
    for name in ("gc_pause", "loader_stuck"):
        (tmp_path / name).mkdir()
        timeline = data_of(unpacked(f"local/{name}.fault", tmp_path / name)).timeline
        assert timeline is not None
        kinds[name] = {timeline.activities[n].kind for n in timeline.activity}
    assert "garbage collection" in kinds["gc_pause"]
    assert "input" in kinds["loader_stuck"]


def test_operations_end_by_the_device_and_with_their_rank(tmp_path: Path) -> None:
    """Calls on a device come back at once, so that only the buffer tells how they ended."""
    timeline = data_of(unpacked("nccl-emulated/communicator_aborted.fault", tmp_path)).timeline
    assert timeline is not None
    still = [
        (timeline.row[span], timeline.seq[span])
        for span in timeline.open
        if timeline.activities[timeline.activity[span]].kind == "operation"
    ]
    assert still == [(0, 10), (2, 10), (3, 10)]
    lengths = [length for length, seq in zip(timeline.length, timeline.seq, strict=True) if seq > 0]
    assert sum(0 <= length < timeline.end_us / 2 for length in lengths) > 20
    ends = {one.rank: one.at_us for one in timeline.moments if one.text.startswith("ended")}
    for span, row in enumerate(timeline.row):
        end = ends.get(timeline.rows[row].rank)
        if end is not None and span in timeline.open:
            assert timeline.begin[span] + timeline.length[span] <= end + 1


def test_what_was_missing_is_told(tmp_path: Path) -> None:
    data = data_of(unpacked("local/process_frozen.fault", tmp_path))
    assert any("flight_recorder" in one.file and "2" in one.file for one in data.missing), (
        data.missing
    )


@pytest.mark.parametrize("cause", sorted(entry_of_each_cause()))
def test_every_cause_has_its_page_data(cause: str, tmp_path: Path) -> None:
    data = data_of(unpacked(entry_of_each_cause()[cause], tmp_path))
    told = data.verdict.cause or data.verdict.status
    assert told.value == cause
    classes = [rank for one in data.classes for rank in one.ranks]
    assert len(classes) == len(set(classes))
    roles = {rank: one.role for one in data.classes for rank in one.ranks}
    assert all(roles[rank] in ("culprit", "missing") for rank in data.verdict.culprits)
    _check_sentences(data.explanation)


def _check_sentences(told: Explanation) -> None:
    """None breaks off, names a line twice, or asks for what is there already."""
    reasons = [one.text for one in told.why]
    mend = [told.mend.text] if told.mend is not None else []
    excluded = [one.why for one in told.excluded]
    for text in (told.headline, *reasons, *mend, *excluded, *told.further):
        assert not re.search(r"\b(is|are|was|were|stands?|at|in|of|the)[.;]?$", text), text
        assert not re.search(r"( at \S+:\d+ \([^)]*\))\1", text), text
        assert not re.search(r"\bNone\b|\{\w*\}", text), text
        assert text and text == text.strip(), text
    assert len(set(reasons)) == len(reasons) <= 5
    if any(place.role == "culprit" for place in told.where):
        assert not any("Take a stack" in text for text in mend)


def _leaves(node: StackNode) -> list[StackNode]:
    if not node.children:
        return [node]
    return [leaf for child in node.children for leaf in _leaves(child)]


def _frames(node: StackNode) -> list[tuple[str, bool]]:
    return list(zip(node.frames, node.user, strict=True))
