"""A hang needs proof that nothing moved, and health that everybody was seen."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from foreign_jobs import START_NS, TICK_NS, Job, dump
from graph_rows import Row, dump_object, world
from test_foreign_jobs import JOBS, Programs

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.program.torch_pickle import torch_pickle
from hanglab.analyzer.verdict import Status

MINUTE_NS = 60 * 1_000_000_000


def write(folder: Path, job: Job, early: dict[int, bytes]) -> None:
    """Dumps of all ranks, as a copy without the times of the files leaves them."""
    for rank in job.programs:
        data = early.get(rank) or pickle.dumps(dump(job, rank, ring=None, clock_ns=0), 2)
        (folder / f"trace_{rank}").write_bytes(data)


@pytest.mark.few(30)
@pytest.mark.parametrize("make", JOBS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("earlier_ms", [0, 5, 20, 100])
@pytest.mark.parametrize("seed", range(4))
def test_a_rank_dumped_earlier_than_its_peers_is_not_accused(
    tmp_path: Path, make: Callable[[], Programs], earlier_ms: int, seed: int
) -> None:
    random = Random(1000 * earlier_ms + seed)
    job = Job(make(), random)
    job.run(20 + random.randrange(60))
    rank = random.choice(sorted(job.programs))
    early = {rank: pickle.dumps(dump(job, rank, ring=None, clock_ns=0), 2)}
    until = job.now + earlier_ms * 1_000_000 // TICK_NS
    while job.now < until and job.run(1):
        pass
    write(tmp_path, job, early)
    verdict = analyze(tmp_path)
    assert verdict.status in (Status.HEALTHY, Status.INCONCLUSIVE)
    assert (verdict.culprits, verdict.findings) == ([], [])


def gloo_or_nccl(folder: Path, backend: str, ranks: int, written_ns: int | None) -> None:
    """A job of which all is finished, and whose files were written so long after that."""
    rows = [Row("all_reduce", seq) for seq in range(1, 41)]
    for rank in range(ranks):
        made = dump_object(rows, backend=backend, members=world(ranks))
        for index, entry in enumerate(made["entries"]):
            entry["time_created_ns"] = START_NS + index * 10_000_000 + rank * 40_000
        path = folder / f"rank_{rank}"
        path.write_bytes(torch_pickle(made))
        if written_ns is not None:
            last_ns = made["entries"][-1]["time_created_ns"]
            os.utime(path, ns=(last_ns + written_ns,) * 2)


@pytest.mark.parametrize("ranks", [2, 4, 7])
@pytest.mark.parametrize("minutes", [30, 45, 300])
@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_a_job_idle_for_half_an_hour_is_not_healthy(
    tmp_path: Path, backend: str, minutes: int, ranks: int
) -> None:
    gloo_or_nccl(tmp_path, backend, ranks, minutes * MINUTE_NS)
    verdict = analyze(tmp_path)
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])
    assert verdict.inputs.would_decide == ["stacks of all ranks", "a later dump of each rank"]
    assert f"for {minutes * 60} s when they were written" in verdict.summary


@pytest.mark.parametrize(
    ("backend", "written_ns"),
    [
        *(("nccl", late_ns) for late_ns in (0, 2_000_000_000)),
        *(("gloo", late_ns) for late_ns in (0, 2_000_000_000, 400 * 24 * 60 * MINUTE_NS, None)),
    ],
)
def test_a_job_that_had_just_moved_is_healthy_and_absurd_times_say_nothing(
    tmp_path: Path, backend: str, written_ns: int | None
) -> None:
    gloo_or_nccl(tmp_path, backend, 4, written_ns)
    assert analyze(tmp_path).status is Status.HEALTHY


@pytest.mark.parametrize("written_ns", [400 * 24 * 60 * MINUTE_NS, None])
def test_copies_that_lost_their_times_tell_nothing_of_groups_without_entries(
    tmp_path: Path, written_ns: int | None
) -> None:
    gloo_or_nccl(tmp_path, "nccl", 4, written_ns)
    verdict = analyze(tmp_path)
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])
    assert "have the times of copies" in verdict.summary
    assert verdict.inputs.would_decide == ["stacks of all ranks", "a later dump of each rank"]


def test_sends_that_leave_no_entry_may_hang_behind_what_is_finished(tmp_path: Path) -> None:
    gloo_or_nccl(tmp_path, "gloo", 2, 5 * MINUTE_NS)
    verdict = analyze(tmp_path)
    assert verdict.status is Status.INCONCLUSIVE
    assert "or in what leaves no entry" in verdict.summary


@pytest.mark.parametrize("old", [{2}, {0, 1, 3}])
def test_dumps_that_are_older_than_others_do_not_show_that_a_job_went_on(
    tmp_path: Path, old: set[int]
) -> None:
    gloo_or_nccl(tmp_path, "nccl", 4, 30 * MINUTE_NS)
    last_ns = START_NS + 39 * 10_000_000
    for rank in old:
        os.utime(tmp_path / f"rank_{rank}", ns=(last_ns + 100_000_000,) * 2)
    verdict = analyze(tmp_path)
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])
    assert "when they were written" in verdict.summary


@pytest.mark.parametrize("late_ns", [MINUTE_NS, 30 * MINUTE_NS])
@pytest.mark.parametrize("culprit", [0, 3])
def test_a_file_time_long_after_the_last_event_proves_that_nobody_came(
    tmp_path: Path, culprit: int, late_ns: int
) -> None:
    rows = [Row("all_reduce", seq) for seq in range(1, 41)]
    for rank in range(5):
        mine = rows if rank == culprit else [*rows, Row("all_reduce", 41, done=False)]
        made = dump_object(mine, members=world(5))
        for index, entry in enumerate(made["entries"]):
            entry["time_created_ns"] = START_NS + index * 10_000_000 + rank * 40_000
        path = tmp_path / f"rank_{rank}"
        path.write_bytes(torch_pickle(made))
        os.utime(path, ns=(START_NS + late_ns,) * 2)
    verdict = analyze(tmp_path)
    assert (verdict.status, verdict.culprits) == (Status.HUNG, [culprit])


@pytest.mark.parametrize(("earlier", "hung"), [(0, False), (3, False), (40, True)])
@pytest.mark.parametrize("op", ["all_reduce", "recv 0<-1"])
def test_a_rank_that_did_nothing_yet_is_held_where_its_peers_began_long_before(
    tmp_path: Path, op: str, earlier: int, *, hung: bool
) -> None:
    """Files that lost their times tell by what peers did alone how late it is."""
    waits = Row(op, 1, done=False, p2p_seq=int(op != "all_reduce"))
    for rank in range(2):
        rows = [Row("all_reduce", n, group="1") for n in range(1, earlier + 1)]
        alone = {**world(2), "1": [0]}
        made = dump_object([] if rank else [*rows, waits], members=world(2) if rank else alone)
        for index, entry in enumerate(made.get("entries", ())):
            entry["time_created_ns"] = START_NS + index * 10_000_000
        path = tmp_path / f"rank_{rank}"
        path.write_bytes(torch_pickle(made))
        os.utime(path, ns=(START_NS + 3 * 24 * 60 * MINUTE_NS,) * 2)
    verdict = analyze(tmp_path)
    assert verdict.status is (Status.HUNG if hung else Status.INCONCLUSIVE)


def write_copies(folder: Path, dumps: list[list[Row]], members: dict[str, list[int]]) -> None:
    """Dumps in files that have the times of a copy."""
    for rank, rows in enumerate(dumps):
        made = dump_object(rows, members=members)
        for index, entry in enumerate(made["entries"]):
            entry["time_created_ns"] = START_NS + index * 10_000_000
        path = folder / f"rank_{rank}"
        path.write_bytes(torch_pickle(made))
        os.utime(path, ns=(START_NS + 3 * 24 * 60 * MINUTE_NS,) * 2)


@pytest.mark.parametrize("threads", [1, 2])
def test_what_one_thread_waits_in_does_not_hold_another(tmp_path: Path, threads: int) -> None:
    """Two groups in opposite order: of two threads, each may come to its own a moment later."""

    def call(group: int, number: int, *, done: bool) -> Row:
        thread = {"thread_name": "python", "thread_id": str(1 + group % threads)}
        return Row("all_reduce", number, group=str(group), done=done, extra=thread)

    before = [call(n % 2, 1 + n // 2, done=True) for n in range(40)]
    dumps = [[*before, call(rank, 21, done=False)] for rank in range(2)]
    write_copies(tmp_path, dumps, {"0": [0, 1], "1": [0, 1]})
    verdict = analyze(tmp_path)
    assert verdict.status is (Status.HUNG if threads == 1 else Status.INCONCLUSIVE)


def test_what_ended_otherwise_holds_nobody_where_one_is_on_its_way_to_the_next(
    tmp_path: Path,
) -> None:
    """Only where all have come to the next may what went wrong before have disturbed it."""
    before = [Row("all_reduce", number) for number in range(1, 40)]
    waits = Row("all_reduce", 41, done=False)
    wrong = Row("all_reduce", 40, inputs=((5,),))
    usual = Row("all_reduce", 40)
    dumps = [[*before, usual, waits], [*before, wrong, waits], [*before, usual]]
    write_copies(tmp_path, dumps, {"0": [0, 1, 2]})
    verdict = analyze(tmp_path)
    assert verdict.status is not Status.HUNG
    assert [(one.status, one.culprits) for one in verdict.findings] == [(Status.CORRUPT, [1])]


@pytest.mark.parametrize("culprit", [0, 3])
def test_what_a_peer_did_long_after_the_rank_was_last_seen_proves_it_too(
    tmp_path: Path, culprit: int
) -> None:
    """Its wait was given up: the newest event of any rank says how long nothing moved."""
    rows = [Row("all_reduce", seq) for seq in range(1, 41)]
    for rank in range(5):
        timed_out = {"time_discovered_completed_ns": START_NS + 11 * MINUTE_NS}
        waits = Row("all_reduce", 41, done=False, state="completed", extra=timed_out)
        mine = rows if rank == culprit else [*rows, waits]
        made = dump_object(mine, members=world(5), status={0: (len(mine), 40)})
        for index, entry in enumerate(made["entries"]):
            entry["time_created_ns"] = START_NS + index * 10_000_000 + rank * 40_000
        (tmp_path / f"rank_{rank}").write_bytes(torch_pickle(made))
    verdict = analyze(tmp_path)
    assert (verdict.status, verdict.culprits) == (Status.HUNG, [culprit])


@pytest.mark.parametrize("culprit", [0, 3])
@pytest.mark.parametrize(
    ("retired", "peers_retired", "hung"),
    [
        (True, True, True),
        # Its watchdog had yet to see what had ended a moment before.
        (False, True, False),
        # Whoever wrote these dumps says nothing of watchdogs.
        (False, False, True),
    ],
)
def test_a_rank_whose_watchdog_is_behind_was_dumped_on_its_way(
    tmp_path: Path, *, retired: bool, peers_retired: bool, hung: bool, culprit: int
) -> None:
    """Where the files have lost their times."""
    for rank in range(5):
        mine = [
            Row("all_reduce", seq, retired=retired if rank == culprit else peers_retired)
            for seq in range(1, 41)
        ]
        if rank != culprit:
            mine.append(Row("all_reduce", 41, done=False))
        made = dump_object(mine, members=world(5))
        for index, entry in enumerate(made["entries"]):
            late_ns = MINUTE_NS if index == 40 else 0
            entry["time_created_ns"] = START_NS + index * 10_000_000 + rank * 40_000 + late_ns
        (tmp_path / f"rank_{rank}").write_bytes(torch_pickle(made))
    verdict = analyze(tmp_path)
    expected = (Status.HUNG, [culprit]) if hung else (Status.INCONCLUSIVE, [])
    assert (verdict.status, verdict.culprits) == expected
