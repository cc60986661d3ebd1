"""Groups that are destroyed and formed again under the same name: generations are told apart."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from graph_rows import Row, columns, dump_object

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.engine import analyze
from hanglab.analyzer.facts.boundary import join
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.graph.dump_folder import wait_for_graph_of_folder
from hanglab.analyzer.matching.generations import merge_dumps
from hanglab.analyzer.verdict import Cause, Finding, Status
from hanglab.recorder.case.progress_records import OperationCall, Progress
from hanglab.recorder.case.records import GroupRecord
from tests.installed import needs_torch

PROGRAM = Path(__file__).with_name("generations_program.py")
SECOND_NS = 1_000_000_000
#: Operation, generation, and whether it has finished.
Called = tuple[str, int, bool]


def dump_of(
    rank: int,
    calls: Sequence[Called],
    *,
    pg_ids: Sequence[int] = (0, 1, 2, 3),
    size: int = 4,
    first: int = 0,
    ahead_ns: int = 0,
) -> RankDump:
    """One group's operations, a second between generations; the ring has dropped ``first``."""
    numbers = dict.fromkeys(range(9), 0)
    rows = []
    for place, (op, generation, done) in enumerate(calls):
        numbers[generation] += 1
        created = (1 + 100 * generation) * SECOND_NS + place * 1_000_000 + ahead_ns
        extra = {"pg_id": pg_ids[generation], "time_created_ns": created}
        rows.append(Row(op, numbers[generation], done=done, line=10 + generation, extra=extra))
    members = {"0": list(range(size))}
    return columns(rank, rows[first:], members=members, backend="nccl", first_record=first)


def names(dump: RankDump) -> list[str]:
    assert dump.entries is not None
    return [dump.entries.group_at(row) for row in range(len(dump.entries))]


def findings(dumps: Sequence[RankDump]) -> list[Finding]:
    return synchronization_findings(build_wait_for_graph(dumps))


FIRST: list[Called] = [("all_reduce", 0, True)] * 5


@pytest.mark.parametrize("away", [0, 3])
@pytest.mark.parametrize("steps", [1, 3, 8])
def test_a_rank_that_is_away_in_the_second_generation(away: int, steps: int) -> None:
    before: list[Called] = [*FIRST, *[("broadcast", 1, True)] * (steps - 1)]
    waiting: list[Called] = [*before, ("broadcast", 1, False)]
    (found,) = findings([dump_of(r, before if r == away else waiting) for r in range(4)])
    assert (found.cause, found.culprits) == (Cause.MISSING_RANK, [away])
    assert found.collective is not None and found.collective.seq == steps


@pytest.mark.parametrize("stuck", [1, 2])
def test_a_rank_that_never_left_the_first_generation(stuck: int) -> None:
    """Its peers wait in the second one, whose names and numbers the first one has, too."""
    mine = [*FIRST[:-1], ("barrier", 0, True)]
    theirs: list[Called] = [*mine, ("all_reduce", 1, False)]
    dumps = [dump_of(rank, mine if rank == stuck else theirs) for rank in range(4)]
    (found,) = findings(dumps)
    assert (found.cause, found.culprits) == (Cause.MISSING_RANK, [stuck])
    assert found.collective is not None and found.collective.seq == 1
    assert set(names(dumps[stuck])) == {"0 (generation 1 of 2)"}


def test_numbers_of_processes_need_not_agree() -> None:
    """A rank that is in fewer groups counts them by other numbers."""
    calls: list[Called] = [*FIRST, ("barrier", 1, True), ("barrier", 2, True)]
    dumps = [dump_of(r, calls, pg_ids=[0, 5, 10] if r else [0, 1, 2]) for r in range(4)]
    merge_dumps(dumps)
    assert {tuple(names(dump)) for dump in dumps} == {
        ("0 (generation 1 of 3)",) * 5 + ("0 (generation 2 of 3)", "0")
    }


@pytest.mark.parametrize("pg_ids", [(0, 1, 2), (0, 4, 8)])
def test_a_ring_that_lost_a_generation(pg_ids: tuple[int, ...]) -> None:
    calls: list[Called] = [*FIRST, *[("barrier", 1, True)] * 3, ("barrier", 2, True)]
    dumps = [dump_of(r, calls, first=0 if r else 6, pg_ids=pg_ids) for r in range(2)]
    merged = merge_dumps(dumps)
    assert names(dumps[0]) == ["0 (generation 2 of 3)"] * 2 + ["0"]
    windows = {key[0]: history[0].windows for key, history in merged.histories.items()}
    assert windows["0 (generation 2 of 3)"] == {0: (2, 4), 1: (1, 4)}
    assert windows["0 (generation 1 of 3)"] == {1: (1, 6)}


def test_a_new_process_among_those_that_went_on() -> None:
    """It counts from 0 what for its peers is the second generation: times tell."""
    new: list[Called] = [("barrier", 1, True)] * 8
    went_on: list[Called] = [*FIRST, *new, ("all_reduce", 1, False)]
    dumps = [dump_of(r, went_on) for r in range(3)] + [
        dump_of(3, new, pg_ids=[0, 0], ahead_ns=4_000_000)
    ]
    graph = build_wait_for_graph(dumps)
    assert [(sink.rank, sink.victims, sink.awaited.seq) for sink in graph.sinks] == [
        (3, (0, 1, 2), len(new) + 1)
    ]
    assert set(names(dumps[3])) == {"0"} and not graph.divergences


def test_clocks_that_differ_by_less_than_a_generation() -> None:
    calls: list[Called] = [*FIRST, *[("barrier", 1, True)] * 3]
    dumps = [dump_of(r, calls, ahead_ns=r * 7 * SECOND_NS) for r in range(4)]
    merge_dumps(dumps)
    assert len({tuple(names(dump)) for dump in dumps}) == 1


def test_two_backends_of_one_group_are_no_generations() -> None:
    rows = [Row("all_reduce", 1 + n // 2, extra={"pg_id": n % 2}) for n in range(6)]
    dump = columns(0, rows, members={"0": [0, 1]})
    merge_dumps([dump])
    assert names(dump) == ["0"] * 6 and not dump.former


def test_what_a_destroyed_group_left_open_holds_up_nobody() -> None:
    """An abort leaves operations as they are; the job goes on in the next generation."""
    calls: list[Called] = [*FIRST, ("all_reduce", 0, False), ("barrier", 1, True)]
    graph = build_wait_for_graph([dump_of(rank, calls) for rank in range(4)])
    assert not (graph.waits or graph.sinks or graph.open)


def test_many_files_are_told_apart_as_few_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hanglab.analyzer.graph.dump_folder.SMALL", 2)
    for rank in range(4):
        rows = [Row("all_reduce", n + 1, extra={"pg_id": 0}) for n in range(4)]
        ends = 1 + (rank != 2)
        rows += [
            Row("broadcast", n + 1, done=n == 0, line=7, extra={"pg_id": 1}) for n in range(ends)
        ]
        dump = dump_object(rows, members={"0": range(4)})
        for place, entry in enumerate(dump["entries"]):
            entry["time_created_ns"] = (1 + place // 4 * 100) * SECOND_NS + place
        (tmp_path / f"rank_{rank}.json").write_text(json.dumps(dump))
    graph, unusable = wait_for_graph_of_folder(tmp_path)
    assert not unusable
    (found,) = synchronization_findings(graph)
    assert (found.cause, found.culprits) == (Cause.MISSING_RANK, [2])
    assert found.collective is not None and (found.collective.op, found.collective.seq) == (
        "broadcast",
        2,
    )


def test_calls_at_the_boundary_tell_generations_of_messages() -> None:
    """Sends leave no entry on gloo; the number before a call begins anew with its group."""
    methods = ["send", "send", "allreduce", "send", "allreduce", "send"]
    numbers = [0, 1, 2, 0, 1, 2]
    operations = [
        OperationCall(
            i, method, "0", 10 * i + 1, 10 * i + 2, completed=True, group_seq=number, peer=1
        )
        for i, (method, number) in enumerate(zip(methods, numbers, strict=True))
    ]
    progress = Progress(1, 0, 0, 0, -1, None, len(operations), operations)
    groups = [GroupRecord(id="0", ranks=[0, 1], backend="gloo", description="default_pg")]
    dump = join(0, None, progress, groups, "case")
    assert dump is not None and dump.entries is not None
    assert [len(names(dump)), len(set(names(dump)[:3])), set(names(dump)[3:])] == [6, 1, {"0"}]
    # The collective is the first of its generation, on either side.
    assert dump.entries.seq.tolist() == [-1, -1, 1, -1, 1, -1]
    assert set(dump.members.values()) == {(0, 1)}


@pytest.mark.parametrize("with_dump", [True, False])
def test_calls_and_entries_share_generations(with_dump: bool) -> None:
    """The send before the first entry of the second generation belongs to it."""
    methods = ["allreduce", "allreduce", "send", "allreduce"]
    numbers = [0, 1, 0, 1]
    operations = [
        OperationCall(
            i, method, "0", 10 * i + 1, 10 * i + 5, completed=True, group_seq=number, peer=1
        )
        for i, (method, number) in enumerate(zip(methods, numbers, strict=True))
    ]
    progress = Progress(1, 0, 0, 0, -1, None, len(operations), operations)
    groups = [GroupRecord(id="0", ranks=[0, 1], backend="gloo", description="default_pg")]
    rows = [
        Row("all_reduce", 1, extra={"pg_id": 0, "op_id": 1, "time_created_ns": 2}),
        Row("all_reduce", 2, extra={"pg_id": 0, "op_id": 2, "time_created_ns": 12}),
        Row("all_reduce", 1, extra={"pg_id": 4, "op_id": 2, "time_created_ns": 32}),
    ]
    recorded = columns(0, rows, backend="gloo")
    dump = join(0, recorded if with_dump else None, progress, groups, "case")
    assert dump is not None and dump.entries is not None
    assert names(dump)[2:] == ["0", "0"] and "0" not in names(dump)[:2]
    assert dump.entries.seq.tolist() == [1, 2, -1, 1]


@pytest.mark.long
@needs_torch
@pytest.mark.parametrize(
    ("steps", "wrong", "kind", "cause"),
    [
        (3, 3, "away", Cause.MISSING_RANK),
        pytest.param(2, 1, "skips", Cause.COLLECTIVE_MISMATCH, marks=pytest.mark.long),
        pytest.param(6, 1, "away", Cause.MISSING_RANK, marks=pytest.mark.long),
        pytest.param(3, 2, "skips", Cause.COLLECTIVE_MISMATCH, marks=pytest.mark.long),
    ],
)
def test_real_jobs_accuse_nobody_by_numbers_of_an_earlier_generation(
    tmp_path: Path, steps: int, wrong: int, kind: str, cause: Cause
) -> None:
    size = 4
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [tmp_path, size, steps, wrong, kind, port]
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    environment = os.environ | {"TORCH_FR_BUFFER_SIZE": "500"}
    subprocess.run(command, env=environment, timeout=280, check=True)
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    later = time.time() + 60
    for rank in range(size):
        (tmp_path / f"dump_{rank}").rename(dumps / f"dump_{rank}")
        os.utime(dumps / f"dump_{rank}", (later, later))
    verdict = analyze(dumps)
    assert (verdict.status, verdict.culprits) == (Status.HUNG, [wrong])
    assert verdict.cause == cause
