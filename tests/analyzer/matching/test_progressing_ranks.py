"""Dumps of a job that still moves, and dumps that were not taken at one moment, accuse nobody."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from graph_rows import Row, columns, dump_object, world

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.program.torch_pickle import torch_pickle
from hanglab.analyzer.verdict import Status, Verdict
from hanglab.analyzer.wording import name_needs

DONE = [Row("all_reduce", seq) for seq in range(1, 41)]
WAITS = [*DONE, Row("all_reduce", 41, done=False)]
#: When the last of DONE was called.
LAST_NS = 1_000_000_000 + 39 * 1_000_000


def verdict(folder: Path, dumps: Mapping[int, list[Row]], written_ns: Mapping[int, int]) -> Verdict:
    for rank, rows in dumps.items():
        path = folder / f"rank_{rank}"
        path.write_bytes(torch_pickle(dump_object(rows, members=world(len(dumps)))))
        os.utime(path, ns=(written_ns[rank], written_ns[rank]))
    return analyze(folder)


def after_a_pause(seconds: int) -> tuple[list[Row], int]:
    """DONE with a pause before the last call, and when that was."""
    last_ns = LAST_NS + seconds * 1_000_000_000
    return [*DONE[:-1], Row("all_reduce", 40, extra={"time_created_ns": last_ns})], last_ns


@pytest.mark.parametrize("pause_ns", [0, 3_000_000, 400_000_000])
def test_a_rank_that_was_active_when_its_dump_was_written_stands_nowhere(
    tmp_path: Path, pause_ns: int
) -> None:
    written = dict.fromkeys(range(4), LAST_NS + pause_ns)
    found = verdict(tmp_path, {r: DONE if r == 1 else WAITS for r in range(4)}, written)
    assert (found.status, found.culprits) == (Status.INCONCLUSIVE, [])
    assert "may still have moved when their dumps were taken" in found.summary


@pytest.mark.parametrize(("quiet_ns", "moves"), [(2_500_000_000, True), (3_500_000_000, False)])
def test_a_rank_that_has_paused_may_pause_three_times_as_long(
    tmp_path: Path, quiet_ns: int, moves: bool
) -> None:
    rows, last_ns = after_a_pause(1)
    written = dict.fromkeys(range(3), last_ns + quiet_ns)
    found = verdict(tmp_path, {0: rows, 1: WAITS, 2: WAITS}, written)
    assert found.culprits == ([] if moves else [0])


@pytest.mark.parametrize(("line", "moves"), [(17, True), (0, False)])
def test_a_dump_with_stacks_is_written_after_it_was_taken(
    tmp_path: Path, line: int, moves: bool
) -> None:
    rows = [Row("all_reduce", seq, line=line) for seq in range(1, 41)]
    written = dict.fromkeys(range(3), LAST_NS + 1_500_000_000)
    found = verdict(tmp_path, {0: rows, 1: WAITS, 2: WAITS}, written)
    assert found.culprits == ([] if moves else [0])


@pytest.mark.parametrize("so_far_s", [30, 45])
def test_a_rank_in_its_usual_pause_stands_nowhere(tmp_path: Path, so_far_s: int) -> None:
    """It loads its data: 40 s once before, and now somewhat longer."""
    rows, last_ns = after_a_pause(40)
    hour = 3600 * 1_000_000_000
    written = {0: last_ns + so_far_s * 1_000_000_000, 1: LAST_NS + hour, 2: LAST_NS + hour}
    found = verdict(tmp_path, {0: rows, 1: WAITS, 2: WAITS}, written)
    assert (found.status, found.culprits) == (Status.INCONCLUSIVE, [])
    assert found.inputs.would_decide == ["a later dump of rank 0"]


@pytest.mark.parametrize("pause_ns", [-5_000_000_000, 1_000_000_000, 600_000_000_000])
def test_a_rank_that_was_quiet_for_longer_is_named(tmp_path: Path, pause_ns: int) -> None:
    """As is one whose file was written before anything happened: such a clock says nothing."""
    written = dict.fromkeys(range(4), LAST_NS + pause_ns)
    found = verdict(tmp_path, {r: DONE if r == 1 else WAITS for r in range(4)}, written)
    assert (found.status, found.culprits) == (Status.HUNG, [1])


@pytest.mark.parametrize(("quiet_s", "sure"), [(5, False), (40, False), (61, True)])
def test_a_host_that_was_quiet_for_less_than_a_minute_is_not_surely_missing(
    tmp_path: Path, quiet_s: int, sure: bool
) -> None:
    """It may write its first checkpoint: its pauses so far were of a millisecond."""
    written = dict.fromkeys(range(4), LAST_NS + quiet_s * 1_000_000_000)
    found = verdict(tmp_path, {r: DONE if r == 1 else WAITS for r in range(4)}, written)
    assert (found.status, found.culprits) == (Status.HUNG, [1])
    assert (found.confidence > 0.9) is sure
    told = [one.rank for one in found.evidence if "a later dump would tell" in one.detail]
    assert told == ([] if sure else [1])


@pytest.mark.parametrize(
    ("awaited_s", "named", "sure"),
    [(0.6, False, False), (4, False, False), (20, True, False), (90, True, True)],
)
def test_a_rank_of_which_nothing_is_on_record_may_have_yet_to_begin(
    tmp_path: Path, awaited_s: float, named: bool, sure: bool
) -> None:
    """Its peers are in their first operation, and it may still load its model."""
    first = [Row("all_reduce", 1, done=False)]
    written = dict.fromkeys(range(4), 1_000_000_000 + int(awaited_s * 1e9))
    found = verdict(tmp_path, {r: [] if r == 1 else first for r in range(4)}, written)
    assert found.culprits == ([1] if named else [])
    assert (found.confidence > 0.9) is sure
    assert found.status is (Status.HUNG if named else Status.INCONCLUSIVE)
    told = [one.rank for one in found.evidence if "a later dump would tell" in one.detail]
    assert told == ([1] if named and not sure else [])


def test_a_wait_of_its_timeout_is_long_enough_for_a_host_to_be_missing(tmp_path: Path) -> None:
    waits = [*DONE, Row("all_reduce", 41, done=False, extra={"timeout_ms": 10_000})]
    done = [*DONE[:-1], Row("all_reduce", 40, extra={"timeout_ms": 10_000})]
    written = dict.fromkeys(range(3), LAST_NS + 10_500_000_000)
    found = verdict(tmp_path, {0: done, 1: waits, 2: waits}, written)
    assert (found.culprits, found.confidence > 0.9) == ([0], True)


def test_a_pause_as_long_as_the_timeout_is_not_usual(tmp_path: Path) -> None:
    rows, last_ns = after_a_pause(2000)
    written = dict.fromkeys(range(3), last_ns + 600_000_000_000)
    found = verdict(tmp_path, {0: rows, 1: WAITS, 2: WAITS}, written)
    assert (found.status, found.culprits) == (Status.HUNG, [0])


def test_a_dump_that_is_older_than_what_peers_finished_proves_nothing() -> None:
    """Rank 1's was taken a few operations earlier: its peers have finished what it lacks."""
    dumps = [columns(r, WAITS[:37] if r == 1 else WAITS, members=world(4)) for r in range(4)]
    graph = build_wait_for_graph(dumps)
    assert graph.progressing == (1,)
    assert [sink.rank for sink in graph.sinks if not sink.unknown] == []
    assert name_needs(graph.needs) == ["a later dump of rank 1"]


def test_what_ended_before_a_peer_finished_the_next_dates_a_dump() -> None:
    """Rank 1's shows in hand what had ended when rank 0 was through with the one behind it."""
    open_then = [*DONE[:-2], Row("all_reduce", 39, done=False), Row("all_reduce", 40, done=False)]
    dumps = [columns(0, WAITS, members=world(2)), columns(1, open_then, members=world(2))]
    graph = build_wait_for_graph(dumps)
    assert graph.progressing == (1,)
    assert [sink.rank for sink in graph.sinks if not sink.unknown] == []


def test_the_last_that_a_peer_finished_may_be_where_a_device_stopped() -> None:
    open_then = [*DONE[:-1], Row("all_reduce", 40, done=False)]
    dumps = [columns(0, WAITS, members=world(2)), columns(1, open_then, members=world(2))]
    assert build_wait_for_graph(dumps).progressing == ()


def test_what_gloo_calls_finished_does_not_date_a_dump() -> None:
    """It may have timed out, waiting for just that rank."""
    dumps = [columns(r, WAITS[:37] if r == 1 else WAITS, backend="gloo") for r in range(4)]
    assert build_wait_for_graph(dumps, expected=range(4)).progressing == ()


@pytest.mark.parametrize("op", ["broadcast", "reduce", "all_to_all", "coalesced"])
def test_what_some_finish_alone_does_not_date_a_dump(op: str) -> None:
    """The root of a broadcast goes on without the rank that has not come yet."""
    rows = [Row(op, seq) for seq in range(1, 41)]
    waits = [*rows, Row("all_reduce", 41, done=False)]
    dumps = [columns(r, rows[:37] if r == 1 else waits, members=world(4)) for r in range(4)]
    graph = build_wait_for_graph(dumps)
    assert graph.progressing == ()
    assert [sink.rank for sink in graph.sinks] == [1]


def test_nothing_is_said_to_move_where_all_has_finished(tmp_path: Path) -> None:
    found = verdict(tmp_path, dict.fromkeys(range(3), DONE), dict.fromkeys(range(3), LAST_NS))
    assert found.status is Status.HEALTHY


def test_groups_that_share_a_name_are_not_taken_for_one_without_their_members() -> None:
    """Two pairs, one of which is through with what the other waits in."""

    def rank(rows: list[Row]) -> list[Row]:
        return [Row(row.op, row.seq, group="7", done=row.done) for row in rows]

    dumps = [columns(r, rank(WAITS if r in (0, 2) else WAITS[:-1])) for r in range(4)]
    graph = build_wait_for_graph(dumps)
    assert not graph.divergences
    assert [sink for sink in graph.sinks if not sink.unknown] == []
    assert graph.cycles == []


def test_the_dump_of_one_rank_alone_is_not_healthy(tmp_path: Path) -> None:
    """It communicates with somebody, and nobody says with whom."""
    (tmp_path / "rank_0").write_bytes(torch_pickle(dump_object(DONE)))
    assert analyze(tmp_path).status is Status.INCONCLUSIVE


def test_members_of_the_default_group_are_counted_where_nobody_lists_them(tmp_path: Path) -> None:
    for rank in (0, 1, 3):
        (tmp_path / f"rank_{rank}").write_bytes(torch_pickle(dump_object(WAITS, backend="gloo")))
    found = analyze(tmp_path)
    assert (found.status, found.culprits) == (Status.INCONCLUSIVE, [])
    assert found.inputs.missing_ranks == [2]


def test_a_dump_that_breaks_off_is_not_healthy(tmp_path: Path) -> None:
    """Its last entry, which broke off, was the one it waited in."""
    whole = torch_pickle(dump_object(WAITS, members=world(2)))
    (tmp_path / "rank_0").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "rank_1").write_bytes(torch_pickle(dump_object(DONE[:20], members=world(2))))
    found = analyze(tmp_path)
    assert (found.status, found.culprits) == (Status.INCONCLUSIVE, [])


def test_a_status_ahead_of_all_entries_is_not_healthy(tmp_path: Path) -> None:
    """It counts sends and receives, too: what is unfinished cannot be told, only that it is."""
    p2p = [Row("all_reduce", 1), Row("send 1->0", 1, p2p_seq=1)]
    for rank, rows, last in ((0, [], (3, 2)), (1, p2p, (1, 1))):
        dump = dump_object(rows, members=world(2), status={0: last})
        (tmp_path / f"rank_{rank}").write_bytes(torch_pickle(dump))
    found = analyze(tmp_path)
    assert (found.status, found.culprits) == (Status.INCONCLUSIVE, [])


def test_a_job_of_which_one_is_behind_is_not_healthy(tmp_path: Path) -> None:
    """The roots of a broadcast went on without it, and wait for nothing yet."""
    rows = [Row("all_reduce", 1), Row("broadcast", 2)]
    for rank in range(3):
        dump = dump_object(rows[:1] if rank == 2 else rows, members=world(3))
        (tmp_path / f"rank_{rank}").write_bytes(torch_pickle(dump))
    assert analyze(tmp_path).status is Status.INCONCLUSIVE


def test_batches_whose_end_was_left_out_differ_from_nothing() -> None:
    """A dump of active entries shows the end of a batch on those ranks only that are in it."""
    batch = [Row("_broadcast_oop", 7, done=False, retired=False) for _ in range(3)]
    end = Row("ALLGATHER_coalesced", 7, inputs=(), done=False)
    waits = Row("all_reduce", 8, done=False)
    rows = {0: [*batch, waits], 1: [*batch, end], 2: [*batch, waits]}
    dumps = [
        columns(r, mine, members=world(3), first_record=20, status={0: (8 if r != 1 else 7, 6)})
        for r, mine in rows.items()
    ]
    graph = build_wait_for_graph(dumps)
    assert graph.divergences == []
    assert [wait.call.op for wait in graph.waits if wait.call.rank == 0] == ["all_reduce"]


@pytest.mark.parametrize("members", [1, 2, 3])
def test_a_batch_that_breaks_off_differs_from_nothing(members: int) -> None:
    batch = [Row("_reduce_oop", 2, done=False, retired=False) for _ in range(3)]
    end = Row("REDUCE_SCATTER_coalesced", 2, inputs=(), done=False)
    whole = [Row("all_reduce", 1), *batch, end]
    dumps = [columns(r, whole, members=world(3)) for r in range(3)]
    dumps[0] = columns(0, whole[: 1 + members], members=world(3))
    dumps[0].damage = "ends too early"
    assert build_wait_for_graph(dumps).divergences == []


def test_orders_that_differ_are_no_ring_where_a_member_is_unknown() -> None:
    """Two threads fill two groups' queues as they like; all wait for rank 2, which has no dump."""
    members = {"0": range(3), "1": range(3)}
    first = [Row("all_reduce", 1, done=False), Row("all_gather", 1, group="1", done=False)]
    dumps = [columns(0, first, members=members), columns(1, first[::-1], members=members)]
    graph = build_wait_for_graph(dumps, expected=range(3))
    assert graph.cycles == []
    assert graph.open == (2,)
    assert name_needs(graph.needs) == ["rank 2's dump"]


def with_heartbeats(rank: int, away: int, limit_ms: int, beats: int) -> list[Row]:
    """Steps, a call that ``away`` does not make, and a thread that calls every five seconds."""
    second = 1_000_000_000

    def row(seq: int, group: str, at_s: float, timeout_ms: int, *, done: bool = True) -> Row:
        extra = {
            "time_created_ns": second + int(at_s * second),
            "timeout_ms": timeout_ms,
            "thread_id": group,
            "thread_name": "python",
        }
        return Row("all_reduce", seq, group=group, done=done, extra=extra)

    rows = [row(seq, "0", seq, limit_ms) for seq in range(1, 11)]
    if rank != away:
        rows.append(row(11, "0", 11, limit_ms, done=False))
    return rows + [row(n, "1", 15 + 5 * n, 10_000) for n in range(1, beats + 1)]


@pytest.mark.parametrize("away", [0, 2])
@pytest.mark.parametrize(("limit_ms", "hung"), [(600_000, True), (3_600_000, False)])
def test_a_thread_that_goes_on_does_not_hide_a_wait_beyond_its_timeout(
    tmp_path: Path, limit_ms: int, away: int, hung: bool
) -> None:
    """Its own timeout: that of the thread's group is over many times, and says nothing."""
    written_ns = 0
    for rank in range(3):
        rows = with_heartbeats(rank, away, limit_ms, 130)
        written_ns = rows[-1].extra["time_created_ns"] + 100_000_000  # type: ignore[index]
        path = tmp_path / f"rank_{rank}"
        members = {"0": range(3), "1": range(3)}
        path.write_bytes(torch_pickle(dump_object(rows, members=members)))
        os.utime(path, ns=(written_ns, written_ns))
    found = analyze(tmp_path)
    assert (found.status is Status.HUNG, found.culprits) == (hung, [away] if hung else [])


@pytest.mark.parametrize(("hours", "hung"), [(0.5, True), (4.0, False)])
def test_files_far_beyond_the_timeouts_may_be_copies(
    tmp_path: Path, hours: float, hung: bool
) -> None:
    """Of a job that moved: rank 1 was seen milliseconds before its peers, as in a usual pause."""
    start_ns, calls = 1_700_000_000_000_000_000, 40
    for rank in range(4):
        rows = [
            Row(
                "all_reduce",
                seq,
                done=seq <= calls,
                extra={"time_created_ns": start_ns + seq * 1_000_000},
            )
            for seq in range(1, calls + 1 + (rank != 1))
        ]
        path = tmp_path / f"rank_{rank}"
        path.write_bytes(torch_pickle(dump_object(rows, members=world(4))))
        late_ns = start_ns + int(hours * 3600e9)
        os.utime(path, ns=(late_ns, late_ns))
    found = analyze(tmp_path)
    assert (found.status is Status.HUNG, found.culprits) == (hung, [1] if hung else [])
