"""A folder that may lack dumps, or whose dumps tell of nothing, is never called healthy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from graph_rows import Row, columns, dump_object, world

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.causes.synchronization.missing_rank import ranks_without_dump
from hanglab.analyzer.engine import analyze
from hanglab.analyzer.facts.boundary import join
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.program.torch_pickle import torch_pickle
from hanglab.analyzer.verdict import Cause, Status, Verdict
from hanglab.recorder.case.progress_records import OperationCall, Progress
from hanglab.recorder.case.records import GroupRecord
from tools.calibration.labelled_findings import uncalibrated

DONE = [Row("all_reduce", 1), Row("all_reduce", 2)]
WAITS = [*DONE, Row("all_reduce", 3, done=False)]
GATHERED = [Row("all_gather", 1, inputs=((4,),), outputs=((4, 4),)), Row("all_reduce", 2)]
GLOO = Path(__file__).parents[2] / "data" / "dumps" / "gloo"


def verdict(folder: Path, dumps: Mapping[int, dict[str, Any]]) -> Verdict:
    for rank, dump in dumps.items():
        (folder / f"rank_{rank}").write_bytes(torch_pickle(dump))
    return analyze(folder)


def gloo(rows: list[Row], ranks: str = "[]") -> dict[str, Any]:
    dump = dump_object(rows, backend="gloo")
    dump["pg_config"][""]["ranks"] = ranks
    return dump


def test_last_ranks_without_a_dump_that_a_nameless_group_names(tmp_path: Path) -> None:
    found = verdict(tmp_path, {rank: gloo(DONE, "[0, 1, 2, 3]") for rank in range(2)})
    assert found.status is Status.INCONCLUSIVE
    assert "ranks 2 and 3 left no dump" in found.summary
    assert found.inputs.missing_ranks == [2, 3]
    assert found.inputs.would_decide[0] == "the dumps of ranks 2 and 3"


def test_last_ranks_that_the_others_wait_for(tmp_path: Path) -> None:
    found = verdict(tmp_path, {rank: gloo(WAITS, "[0, 1, 2, 3]") for rank in range(2)})
    assert (found.status, found.culprits) == (Status.INCONCLUSIVE, [])
    assert found.inputs.missing_ranks == [2, 3]


@pytest.mark.parametrize("rows", [DONE, WAITS])
def test_nothing_says_whether_there_are_more_ranks(tmp_path: Path, rows: list[Row]) -> None:
    found = verdict(tmp_path, {rank: gloo(rows) for rank in range(2)})
    assert (found.status, found.culprits) == (Status.INCONCLUSIVE, [])
    assert "the dumps of any ranks after 1" in found.inputs.would_decide
    assert "Everybody" not in found.summary


@pytest.mark.parametrize("count", [2, 3, 4])
def test_what_was_gathered_tells_how_many_ranks_there_are(tmp_path: Path, count: int) -> None:
    found = verdict(tmp_path, {rank: gloo(GATHERED) for rank in range(count)})
    assert found.status is (Status.HEALTHY if count == 4 else Status.INCONCLUSIVE)
    assert found.inputs.missing_ranks == list(range(count, 4))


@pytest.mark.parametrize("lost", [{3}, {2, 3}, {0}, {1, 2, 3}])
@pytest.mark.parametrize("form", ["plain", "stacks", "json"])
def test_dumps_that_torch_wrote_on_gloo(tmp_path: Path, form: str, lost: set[int]) -> None:
    for rank in set(range(4)) - lost:
        (file,) = (GLOO / form).glob(f"rank_{rank}*")
        (tmp_path / file.name).write_bytes(file.read_bytes())
    found = analyze(tmp_path)
    assert (found.status, found.culprits) == (Status.INCONCLUSIVE, [])
    assert set(found.inputs.missing_ranks) == lost


def test_dumps_that_know_of_nothing(tmp_path: Path) -> None:
    found = verdict(tmp_path, {rank: dump_object([]) for rank in range(2)})
    assert (found.status, found.culprits) == (Status.INCONCLUSIVE, [])
    assert found.summary == "Nothing was recorded: the dumps of ranks 0 and 1 know of no operation."
    assert "TORCH_FR_BUFFER_SIZE" in found.advice
    assert "TORCH_NCCL_TRACE_BUFFER_SIZE" in found.advice


def test_dumps_that_know_of_groups_and_of_no_operation(tmp_path: Path) -> None:
    dumps = {rank: dump_object([], members=world(2)) for rank in range(2)}
    assert verdict(tmp_path, dumps).status is Status.INCONCLUSIVE


def test_one_dump_that_knows_of_nothing(tmp_path: Path) -> None:
    dumps = {rank: dump_object(DONE, members=world(3)) for rank in range(2)}
    found = verdict(tmp_path, {**dumps, 2: dump_object([])})
    assert (found.status, found.culprits) == (Status.INCONCLUSIVE, [])
    assert "Rank 2 left a dump that tells of nothing" in found.summary


def test_what_gloo_hides_may_be_what_a_rank_is_in(tmp_path: Path) -> None:
    """Rank 1 sent something; rank 2, which the others wait for, may wait to receive."""
    sent = [DONE[0], Row("all_reduce", 2, extra={"op_id": 3})]
    dumps = {0: WAITS, 1: [*sent, Row("all_reduce", 3, done=False, extra={"op_id": 4})], 2: DONE}
    found = verdict(tmp_path, {rank: gloo(rows) for rank, rows in dumps.items()})
    assert (found.status, found.culprits) == (Status.INCONCLUSIVE, [])
    assert "rank 2's stack" in found.inputs.would_decide


def test_several_that_stand_outside_may_be_in_what_gloo_hides(tmp_path: Path) -> None:
    """Nobody is known to have sent anything; ranks 2 and 3 may send to each other for the first
    time, where one alone is named, with a word of doubt."""
    gathered = [GATHERED[0], GATHERED[1], Row("all_reduce", 3, done=False)]
    several = {0: gathered, 1: gathered, 2: GATHERED, 3: GATHERED}
    found = verdict(tmp_path, {rank: gloo(rows) for rank, rows in several.items()})
    assert (found.status, found.culprits) == (Status.INCONCLUSIVE, [])
    assert found.inputs.would_decide == ["the stacks of ranks 2 and 3"]
    assert "whether ranks 2 and 3 came cannot be told" in found.summary
    found = verdict(tmp_path, {2: gloo(gathered)})
    assert (found.status, found.culprits) == (Status.HUNG, [3])
    assert "leave no entry on gloo" in found.summary
    # By itself; how often such findings are right is fitted (tools.calibration).
    assert uncalibrated(tmp_path).confidence <= 0.6


def test_a_recorded_job_hides_no_sends() -> None:
    """A send that the Python boundary did not see was not sent, so both are named outright."""
    waits = [*DONE, Row("all_reduce", 3, done=False)]
    dumps = []
    for rank in range(5):
        dump = columns(rank, waits if rank < 3 else DONE, backend="gloo")
        joined = join(rank, dump, Progress(1, rank, 0, 0, 0, None, 0), [], "")
        assert joined is not None
        dumps.append(joined)
    (finding,) = synchronization_findings(build_wait_for_graph(dumps, expected=range(5)))
    assert (finding.culprits, finding.confidence) == ([3, 4], 0.9)


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("calls_of_last", [0, 1])
def test_a_rank_without_a_dump_that_made_no_call_at_the_boundary(
    recorded: bool, calls_of_last: int
) -> None:
    """Rank 2, whose dump died with it, called from Python; what 0 and 1 call DDP issues from C++.

    Rank 3's dump died, too: its boundary tells that it was not in rank 2's call, unless it was.
    """
    groups = [GroupRecord(id="0", ranks=[0, 1, 2, 3], backend="gloo", description="default_pg")]
    rows = [Row("all_reduce", n, inputs=((64,),), line=31, done=n < 5) for n in range(1, 6)]
    dumps = [columns(rank, rows, backend="gloo", members=world(4)) for rank in (0, 1)]
    for rank, count in ((2, 1), (3, calls_of_last)):
        if rank == 3 and not recorded:
            continue
        calls = [
            OperationCall(0, "allreduce", "0", 5, group_seq=4, shape=(1,), file="/t.py", line=36)
        ][:count]
        joined = join(rank, None, Progress(1, rank, 0, 0, -1, None, count, calls), groups, "")
        assert joined is not None
        dumps.append(joined)
    found = synchronization_findings(build_wait_for_graph(dumps, expected=range(4)))
    told = [one.culprits for one in found if one.confidence > 0.6]
    assert told == ([[2]] if recorded and not calls_of_last else [])


@pytest.mark.parametrize("size", [5, 8])
def test_more_ranks_that_may_be_on_their_way_than_are_known_are_no_votes(size: int) -> None:
    """Of ranks 3 and up it is known that they made no call at the boundary, and no more."""
    members = list(range(size))
    groups = [GroupRecord(id="0", ranks=members, backend="gloo", description="default_pg")]
    rows = [Row("all_reduce", n, inputs=((64,),), line=31, done=n < 5) for n in range(1, 6)]
    dumps = [columns(rank, rows, backend="gloo", members=world(size)) for rank in (0, 1)]
    call = OperationCall(0, "allreduce", "0", 5, group_seq=4, shape=(1,), file="/t.py", line=36)
    for rank in members[2:]:
        calls = [call] if rank == 2 else []
        progress = Progress(1, rank, 0, 0, -1, None, len(calls), calls)
        joined = join(rank, None, progress, groups, "")
        assert joined is not None
        dumps.append(joined)
    found = synchronization_findings(build_wait_for_graph(dumps, expected=members))
    assert all(one.confidence <= 0.6 for one in found)


def test_who_left_no_dump_and_is_waited_for_alone_is_told_as_what_could_still_be() -> None:
    """It may have died, or its file is lost: nobody is accused, but a reader knows whom to ask."""
    rows = [*DONE, Row("all_reduce", 3, done=False)]
    dumps = [columns(rank, rows, members=world(4)) for rank in (0, 1, 3)]
    graph = build_wait_for_graph(dumps, expected=range(4))
    assert synchronization_findings(graph) == []
    (other,) = ranks_without_dump(graph)
    assert (other.cause, other.culprits) == (Cause.MISSING_RANK, [2])
    # Of one that waits elsewhere nobody knows either, but it has its dump.
    behind = [*DONE, Row("recv 2<-0", 0, p2p_seq=7, done=False)]
    dumps.append(columns(2, behind, members=world(4), first_record=90))
    assert ranks_without_dump(build_wait_for_graph(dumps, expected=range(4))) == []
