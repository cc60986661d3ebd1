"""The first sentence of every cause, from an entry of the corpus or from the verdict alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hanglab.analyzer.engine import examine
from hanglab.analyzer.graph.wait_for_graph import Cycle, OrderDeparture, Sink
from hanglab.analyzer.verdict import Cause, CollectiveRef, Evidence, Location, Status, Verdict
from hanglab.analyzer.wording import UNTOLD
from hanglab.harness.corpus.entries import unpack_entry
from hanglab.harness.report.explanation.explaining import explain, explain_examined
from hanglab.harness.report.explanation.headlines import duration
from hanglab.harness.report.explanation.subject import ranks_name
from tests.analyzer.flight_recorder.dump_builders import dump, entry, frames, torch_pickle
from tools.corpus.__main__ import CORPUS

OF_CORPUS = {
    "scripts/receive_before_monitored_barrier": (
        "Rank 2 (file1.py:20) did not issue the other half of a send or receive; ranks 0 and 1 "
        "waited for it in vain and failed."
    ),
    "scripts/weights_left_out_by_learners": (
        "Ranks 3 and 4 (file1.py:26) left an operation out that ranks 0-2 issued; they have "
        "waited 8.0 s for them in broadcast #3 of default_pg, file1.py:17."
    ),
    "scripts/barrier_under_lock": (
        "Rank 1 keeps ranks 0 and 2 waiting for the lock (FLOCK) of /tmp/path3 and waits for them "
        "meanwhile at file1.py:33 (function3); they have waited 10 s for it."
    ),
    "local/slow_every_tenth.fault": (
        "Rank 2 takes longer than ranks 0, 1 and 3, in every 10th step, at "
        "slow_every_tenth.py:14 (evaluate); they wait 14 ms a step for it (34% of the time)."
    ),
    "torchrun/slow_every_tenth.fault": (
        "Rank 2 takes longer than ranks 0, 1 and 3, in every 10th step, at "
        "slow_every_tenth.py:14 (evaluate); they wait 8 ms a step for it (27% of the time)."
    ),
    "nccl-emulated/more_than_fits.fault": (
        "Rank 1 ran out of GPU memory at more_than_fits.py:21 (more_than_fits); the job failed."
    ),
    "local/python_deadlock.fault": (
        "Rank 1 waits for a lock that nobody releases at python_deadlock.py:29 (prune); ranks 0, "
        "2 and 3 have waited 1.5 s for it in all_reduce #12 of default_pg, python_deadlock.py:44."
    ),
    "nccl-emulated/host_sync.fault": (
        "Rank 1 waits for its device at host_sync.py:27 (host_sync) before launching what would "
        "free it; rank 0 has waited 1.5 s for it in recv from rank 1 of requests, "
        "host_sync.py:22."
    ),
    "local/collective_mismatch.fault": (
        "Rank 1 called all_gather at collective_mismatch.py:14 (global_norm) where ranks 0, 2 "
        "and 3 called all_reduce #30 of default_pg; they have waited 1.5 s for it."
    ),
    "scripts/swapped_reductions": (
        "Rank 1 called all_reduce at file2.py:18 (function1) with [40, 48] where ranks 0 and 2 "
        "passed [56, 48], which is another call; they failed too."
    ),
    "local/skipped_collective.fault": (
        "Rank 1 left out all_reduce #11 of default_pg and went on to broadcast at "
        "skipped_collective.py:21 (skipped_collective); ranks 0, 2 and 3 have waited 1.5 s for "
        "it."
    ),
    "local/uneven_inputs.fault": (
        "Rank 2 (uneven_inputs.py:16) left the loop that ranks 0, 1 and 3 are still in, after "
        "fewer steps; they have waited 1.5 s for it in all_reduce #12 of default_pg, "
        "uneven_inputs.py:36."
    ),
    "local/missing_rank.fault": (
        "Rank 2 is not in any operation but at missing_rank.py:27 (put); ranks 0, 1 and 3 have "
        "waited 1.5 s for it in all_reduce #12 of default_pg, missing_rank.py:42."
    ),
    "nccl-emulated/size_mismatch_hangs.fault": (
        "Rank 1 called all_reduce at size_mismatch_hangs.py:25 (size_mismatch_hangs) with "
        "[16777216] where ranks 0, 2 and 3 passed [1024]; they have waited 2.0 s for it in "
        "all_reduce #11 of default_pg."
    ),
    "local/dtype_mismatch.fault": (
        "Rank 1 called all_reduce at dtype_mismatch.py:12 (reduce_gradient) with Half where ranks"
        " 0, 2 and 3 passed Float; ranks 0 and 2 failed too."
    ),
    "local/root_mismatch.fault": (
        "Rank 1 called broadcast #12 of default_pg at root_mismatch.py:12 (share_best) with root "
        "0 where ranks 0, 2 and 3 passed root 1; they have waited 1.5 s for it."
    ),
    "local/split_mismatch.fault": (
        "Rank 1 called all_to_all #22 of default_pg at split_mismatch.py:12 (dispatch) with split"
        " sizes that do not fit those of ranks 0, 2 and 3; they failed too."
    ),
    "local/group_order.fault": (
        "Rank 1 (group_order.py:38) entered the groups in another order than ranks 0, 2 and 3; "
        "they have waited 1.5 s for it in all_reduce #6 of dense."
    ),
    "local/group_creation.fault": (
        "Rank 1 (group_creation.py:24) did not call new_group as others did; ranks 0, 2 and 3 have "
        "waited 1.5 s for it."
    ),
    "local/p2p_deadlock.fault": (
        "Ranks 0 and 1 wait for each other in sends and receives at p2p_deadlock.py:13 "
        "(exchange); ranks 2 and 3 have waited 1.5 s for them in all_reduce #11 of default_pg, "
        "p2p_deadlock.py:40."
    ),
    "local/p2p_unmatched.fault": (
        "Rank 1 (p2p_unmatched.py:37) did not issue the other half of rank 2's recv from rank 1 "
        "of default_pg; ranks 0, 2 and 3 have waited 1.5 s for it."
    ),
    "local/input_starved.fault": (
        "All ranks wait for their input in section dataloader, 100% of the time."
    ),
    "local/loader_stuck.fault": (
        "Rank 1 gets no data at loader_stuck.py:26 (__iter__); ranks 0, 2 and 3 have waited 1.5 "
        "s for it in all_reduce #15 of default_pg, loader_stuck.py:43."
    ),
    "local/loader_worker_died.fault": (
        "Rank 1 lost a data loader worker at loader_worker_died.py:42 (loader_worker_died); ranks"
        " 0 and 2 lost it and failed."
    ),
    "local/slow_input.fault": (
        "Rank 1 gets its input later than ranks 0, 2 and 3 in section dataloader; they wait 65 "
        "ms a step for it (78% of the time)."
    ),
    "local/cpu_throttled.fault": (
        "Rank 2 is throttled to its processor quota; ranks 0, 1 and 3 wait for it 29% of the time."
    ),
    "local/memory_pressure.fault": (
        "Rank 2 is at its memory limit and reads back what was dropped; ranks 0, 1 and 3 wait "
        "for it 31% of the time."
    ),
    "local/oom_killed.fault": (
        "The kernel killed rank 2 for want of memory; ranks 1 and 3 lost it and failed."
    ),
    "local/shm_exhausted.fault": (
        "Rank 1 found no room in shared memory (/dev/shm) at shm_exhausted.py:29 (shm_exhausted);"
        " ranks 0 and 2 lost it and failed."
    ),
    "local/disk_full.fault": (
        "Rank 0 found a full disk at disk_full.py:26 (disk_full); ranks 1 and 3 lost it and failed."
    ),
    "local/fd_exhausted.fault": (
        "Rank 1 ran out of file descriptors at fd_exhausted.py:24 (fd_exhausted); ranks 0 and 2 "
        "lost it and failed."
    ),
    "local/pids_exhausted.fault": (
        "Rank 1 could not start another process or thread at pids_exhausted.py:13 "
        "(log_in_background); ranks 0 and 2 lost it and failed."
    ),
    "local/process_frozen.fault": (
        "Rank 2 is stopped by a signal or a freezer at process_frozen.py:23 (process_frozen); "
        "ranks 0, 1 and 3 have waited 1.5 s for it in all_reduce #15 of default_pg."
    ),
    "local/io_blocked.fault": (
        "Rank 1 is blocked in the kernel; ranks 0, 2 and 3 have waited 1.5 s for it in all_reduce "
        "#11 of default_pg, io_blocked.py:26."
    ),
    "local/rendezvous_missing_rank.fault": (
        "The job never formed: rank 3 did not join it; ranks 0-2 have waited 4.5 s for it."
    ),
    "local/store_lost.fault": (
        "Rank 0 kept the job's store and came to its end while others needed it; ranks 1-3 lost "
        "it and failed."
    ),
    "local/exception.fault": (
        "Rank 1 raised ValueError: label 8 of 8 classes at exception.py:14 (check); ranks 0 and 2"
        " lost it and failed."
    ),
    "local/crash.fault": "Rank 2 crashed: ended by SIGSEGV; ranks 1 and 3 lost it and failed.",
    "local/gil_held.fault": (
        "Rank 1 is inside C code that holds the interpreter lock (GIL) at gil_held.py:19 "
        "(check); ranks 0, 2 and 3 have waited 1.5 s for it in all_reduce #12 of default_pg, "
        "gil_held.py:33."
    ),
    "local/busy_loop.fault": (
        "Rank 2 spins at busy_loop.py:26 (get) without getting anywhere; ranks 0, 1 and 3 have "
        "waited 4.7 s for it in all_reduce #11 of default_pg, busy_loop.py:44."
    ),
    "local/rank0_work.fault": (
        "Rank 0 works alone at rank0_work.py:13 (words); ranks 1-3 waited 11 s for it."
    ),
    "local/fork_deadlock.fault": (
        "Rank 2 waits for a child process that was forked with a lock held at "
        "fork_deadlock.py:54 (fork_deadlock); ranks 0, 1 and 3 have waited 1.5 s for it in "
        "all_reduce #12 of default_pg, fork_deadlock.py:41."
    ),
    "local/teardown.fault": (
        "Rank 1 is shutting down and does not get through at teardown.py:21 (write); nothing has "
        "moved for 3.9 s."
    ),
    "local/slow_backward.fault": (
        "Rank 2 takes longer than ranks 0, 1 and 3 in section backward at slow_backward.py:22 "
        "(backward); they wait 38 ms a step for it (57% of the time)."
    ),
    "local/slow_host.fault": (
        "Rank 1 does no more work than rank 0 and gets less of its processor; rank 0 waits 44 ms "
        "a step for it (67% of the time)."
    ),
    "local/gc_pause.fault": (
        "Rank 1 collects garbage for longer than ranks 0, 2 and 3; they wait 12 ms a step for it "
        "(44% of the time)."
    ),
    "local/imbalance_by_length.fault": (
        "Rank 1 gets larger batches than rank 0 and computes longer; rank 0 waits 40 ms a "
        "step for it (59% of the time)."
    ),
    "local/imbalance_in_turns.fault": (
        "Whichever rank has the largest batch is late: ranks wait for each other 46% of the time."
    ),
    "nccl-emulated/device_stopped.fault": (
        "The device of rank 2 has stopped in all_reduce #9 of default_pg, which others are done "
        "with; ranks 0, 1 and 3 have waited 1.9 s for it in all_reduce #10 of default_pg, "
        "device_stopped.py:22."
    ),
    "nccl-emulated/gpu_off_the_bus.fault": (
        "The GPU of rank 2 has a fault: the kernel says: NVRM: Xid (PCI:0000:12:00): 79, "
        "pid=11931, name=python, GPU has fallen off the bus; ranks 0, 1 and 3 have waited 1.9 s "
        "for it in all_reduce #10 of default_pg, gpu_off_the_bus.py:22."
    ),
    "nccl-emulated/link_down.fault": (
        "Every rank is inside all_reduce #10 of default_pg with the same arguments, and nothing "
        "of it finishes; nothing has moved for 1.5 s."
    ),
    "rendered/extra-94": (
        "Either rank 0 or rank 1 issues other operations than the others; nothing has moved for "
        "17 min."
    ),
    "rendered/stop-195": (
        "Rank 0 waits in all_reduce_barrier #24 of default_pg, which rank 1 has not entered, and "
        "nothing tells which of them is wrong; nothing has moved for 17 min."
    ),
    "rendered/unmatched-11": (
        "Either rank 7 or rank 14 did not issue the other half of rank 14's recv from rank 7 of "
        "group_3; ranks 0-6, 8-13 and 15-23 have waited 17 min for it."
    ),
}

#: Causes of which the corpus has no entry: the verdict alone, as detectors make it.
ALONE = {
    Cause.PYTHON_DEADLOCK: (
        Status.HUNG,
        "1 other thread waits; its main thread waits on a condition that nobody signals at "
        "train.py:24 (wait)",
        "Rank 1 waits on a condition that nobody signals; ranks 0 and 2 wait for it in all_reduce "
        "#7 of default_pg.",
    ),
    Cause.REDUCTION_MISMATCH: (
        Status.CORRUPT,
        "",
        "Rank 1 called all_reduce #7 of default_pg with another reduce operation than ranks 0 and "
        "2; nobody waits for it, and its results are undefined.",
    ),
    Cause.PARTITION: (
        Status.HUNG,
        "its connection to rank 0 has 12 KiB unacknowledged",
        "The network does not carry what rank 1 and ranks 0 and 2 send each other; they wait for "
        "it in all_reduce #7 of default_pg.",
    ),
    Cause.SLOW_LINK: (
        Status.SLOW,
        "its connection to rank 0 delivers 2 MB a second",
        "The link of rank 1 is slow: its connection to rank 0 delivers 2 MB a second.",
    ),
    Cause.HOST_LOST: (
        Status.FAILED,
        "pod train-1 was evicted from its node",
        "The cluster took the host of rank 1 away; the job failed.",
    ),
    Cause.GPU_THROTTLED: (
        Status.SLOW,
        "its GPU runs at 900 of 1980 MHz",
        "The GPU of rank 1 is throttled: its GPU runs at 900 of 1980 MHz.",
    ),
}


@pytest.mark.parametrize("entry", OF_CORPUS)
def test_the_first_sentence_names_the_culprit_and_the_wait(tmp_path: Path, entry: str) -> None:
    unpack_entry(CORPUS, entry, tmp_path / "case")
    assert explain_examined(examine(tmp_path / "case")).headline == OF_CORPUS[entry]


@pytest.mark.parametrize("begun", [False, True])
def test_who_waits_for_a_second_fault_is_not_said_to_wait_for_the_first(
    tmp_path: Path, begun: bool
) -> None:
    """Rank 0 passes another size to its group; of the other group rank 5 has stopped.

    Or has yet to join it, where nothing was ``begun`` in that group before.
    """
    groups = {"1": [0, 1, 2], "2": [3, 4, 5]}
    config = {
        name: {"name": name, "desc": f"part_{name}", "ranks": str(members)}
        for name, members in {"0": list(range(6)), **groups}.items()
    }
    for rank in range(6):
        name = "1" if rank < 3 else "2"
        own = {**config}
        del own["2" if rank < 3 else "1"]
        rows = [entry(0)]
        group = {"process_group": (name, f"part_{name}"), "pg_id": 1}
        if begun:
            rows.append(entry(1, collective_seq_id=1, **group))
        if rank != 5:
            size = [[8, 2]] if rank == 0 else [[4, 2]]
            waits = {"collective_seq_id": 1 + begun, "state": "scheduled", "retired": False}
            sizes = {"input_sizes": size, "output_sizes": size}
            late = {"time_discovered_completed_ns": None}
            rows.append(entry(1 + begun, **group, **waits, **sizes, **late))
        status = {"0": {"last_enqueued_collective": 1, "last_completed_collective": 1}}
        if begun:
            entered = 2 if rank != 5 else 1
            status["1"] = {"last_enqueued_collective": entered, "last_completed_collective": 1}
        made = dump(rows, pg_config=own, pg_status=status)
        path = tmp_path / f"rank_{rank}"
        path.write_bytes(torch_pickle(made))
        os.utime(path, (1_700_000_600, 1_700_000_600))  # ten minutes after its entries
    told = explain_examined(examine(tmp_path)).headline
    assert told == (
        "Rank 0 called all_reduce at train.py:10 (train) with [8, 2] where ranks 1 and 2 passed "
        f"[4, 2]; they have waited 10 min for it in all_reduce #{1 + begun} of part_1. Rank 5 "
        "has not come to what ranks 3 and 4 wait in, either."
    )


@pytest.mark.parametrize(
    ("before", "told"),
    [
        ("nccl:all_reduce", "left out one all_reduce of default_pg, #6 at the latest, and went on"),
        ("nccl:all_gather", "left out all_reduce #6 of default_pg and went on"),
    ],
)
def test_of_calls_that_are_alike_any_may_be_the_one_left_out(
    tmp_path: Path, before: str, told: str
) -> None:
    """Rank 1 is a call behind, and in what its peers call after all of theirs."""
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    waits = {"state": "scheduled", "retired": False, "time_discovered_completed_ns": None}
    status = {"0": {"last_enqueued_collective": 6, "last_completed_collective": 5}}
    for rank in range(3):
        rows = [entry(number) for number in range(4)]
        rows.append(entry(4, profiling_name=before))
        late = {"profiling_name": "nccl:broadcast", "frames": frames(15, 20)} if rank == 1 else {}
        rows.append(entry(5, **late, **waits))
        made = dump(rows, pg_config=config, pg_status=status)
        (tmp_path / f"rank_{rank}").write_bytes(torch_pickle(made))
    found = examine(tmp_path)
    found.verdict.cause = Cause.SKIPPED_COLLECTIVE
    assert told in explain_examined(found).headline


def folder_of(folder: Path, calls: dict[int, list[dict[str, Any]]]) -> None:
    """Dumps of a job of one group, each rank's entries by it; the last one has not ended."""
    members = str(sorted(calls))
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": members}}
    for rank, rows in calls.items():
        ended = {"last_enqueued_collective": len(rows), "last_completed_collective": 2}
        made = dump(rows, pg_config=config, pg_status={"0": ended})
        path = folder / f"rank_{rank}"
        path.write_bytes(torch_pickle(made))
        os.utime(path, (1_700_000_600, 1_700_000_600))  # ten minutes after its entries


WAITS = {"state": "scheduled", "retired": False, "time_discovered_completed_ns": None}


@pytest.mark.parametrize(("line", "told"), [(15, ", train.py:15."), (18, " of default_pg.")])
def test_a_line_of_one_who_waits_is_not_said_to_be_that_of_all(
    tmp_path: Path, line: int, told: str
) -> None:
    waits = {
        rank: entry(2, frames=frames(line if rank == 3 else 15, 20), **WAITS) for rank in (0, 2, 3)
    }
    rows = [entry(0), entry(1)]
    folder_of(tmp_path, {1: rows, **{rank: [*rows, one] for rank, one in waits.items()}})
    headline = explain_examined(examine(tmp_path)).headline
    assert headline.startswith("Rank 1 never entered what ranks 0, 2 and 3 wait in")
    assert headline.endswith(told)


def test_ranks_without_a_dump_are_ranks_of_the_job(tmp_path: Path) -> None:
    rows = [entry(0), entry(1)]
    calls = {rank: [*rows, entry(2, **WAITS)] for rank in range(4)}
    folder_of(tmp_path, {**calls, 1: rows})
    assert explain_examined(examine(tmp_path)).ranks == 4
    (tmp_path / "rank_3").unlink()
    found = explain_examined(examine(tmp_path))
    assert (found.ranks, found.waiting) == (4, (0, 2))


def test_the_line_of_who_waits_for_a_message_is_not_the_culprits(tmp_path: Path) -> None:
    place = Location("train.py", 15, "train", 0)
    verdict = Verdict(
        status=Status.HUNG,
        cause=Cause.P2P_UNMATCHED,
        culprits=[1],
        victims=[0],
        location=place,
        confidence=0.9,
        collective=CollectiveRef("default_pg", "0", [0, 1], None, "send"),
        summary="What the analyzer says.",
    )
    assert "train.py:15" not in explain(verdict).headline
    verdict.location = msgspec.structs.replace(place, rank=1)
    assert "Rank 1 (train.py:15)" in explain(verdict).headline


def test_who_has_not_come_beside_the_culprit_is_told_without_being_one(tmp_path: Path) -> None:
    """Rank 3 is past what ranks 0 and 2 wait in, and rank 1 has not come there."""
    rows = [entry(0), entry(1)]
    waits = {rank: entry(2, **WAITS) for rank in (0, 2)}
    past = entry(2, profiling_name="nccl:broadcast", frames=frames(16, 20), **WAITS)
    folder_of(tmp_path, {1: rows, 3: [*rows, past], **{r: [*rows, w] for r, w in waits.items()}})
    found = examine(tmp_path)
    assert found.verdict.culprits == [3]
    assert explain_examined(found).headline.endswith(". Rank 1 has not come there, either.")
    assert any(
        "the others go on once rank 1 comes, too" in e.detail for e in found.verdict.evidence
    )


def test_a_third_that_was_taken_from_is_told_of_who_takes_from_any_rank() -> None:
    told = (
        "Rank 1 sent one message more than its share to rank 0, which takes from any rank, so that "
        "rank 2's has no counterpart"
    )
    verdict = Verdict(
        status=Status.HUNG,
        cause=Cause.P2P_UNMATCHED,
        culprits=[0, 1],
        victims=[2],
        confidence=0.5,
        collective=CollectiveRef("default_pg", "0", [0, 1, 2], None, "send"),
        summary=f"{told}; or rank 0 took too few.",
    )
    assert explain(verdict).headline.startswith(f"{told}; or rank 0 took too few; rank 2 waits")


@pytest.mark.parametrize(
    ("cause", "status", "summary", "seen", "told"),
    [
        (
            Cause.GROUP_CREATION,
            Status.HUNG,
            "new_group was called differently: as call number 1, rank 0 asked for [0, 1]; rank 1 "
            "asked for [1, 2].",
            "not in new_group",
            "new_group was called differently: as call number 1, rank 0 asked for [0, 1]; rank 1 "
            "asked for [1, 2]; rank 0 waits for it",
        ),
        (
            Cause.MISSING_RANK,
            Status.HUNG,
            "",
            "it waits for the store's key 'a/01', which nobody sets: 'a/1' is set",
            "Rank 1 (train.py:15) waits for the store's key 'a/01', which nobody sets: 'a/1' is "
            "set; rank 0 waits for it",
        ),
        (
            Cause.SLOW_COMPUTE,
            Status.SLOW,
            "",
            "was blocked at train.py:15 (train) for 9.0 ms a step more than its peers",
            "Rank 1 is blocked longer than rank 0 at train.py:15 (train)",
        ),
    ],
)
def test_what_the_evidence_tells_is_in_the_first_sentence(
    cause: Cause, status: Status, summary: str, seen: str, told: str
) -> None:
    verdict = Verdict(
        status=status,
        cause=cause,
        culprits=[1],
        victims=[0],
        location=Location("train.py", 15, "train", 1),
        evidence=[Evidence("stack", 1, seen)],
        confidence=0.9,
        summary=summary,
    )
    assert explain(verdict).headline.startswith(told)


def test_what_the_graph_tells_is_in_the_first_sentence(tmp_path: Path) -> None:
    """Of two threads, of siblings, of a ring, and of a link beside a device."""
    rows = [entry(0), entry(1)]
    other = entry(2, profiling_name="nccl:broadcast", frames=frames(16, 20), **WAITS)
    waits = {rank: [*rows, entry(2, **WAITS)] for rank in (0, 2)}
    folder_of(tmp_path, {1: [*rows, other], **waits})
    found = examine(tmp_path)
    graph, verdict = found.facts.graph, found.verdict
    (divergence,) = graph.divergences
    verdict.cause, divergence.thread_turns = Cause.COLLECTIVE_MISMATCH, True
    assert explain_examined(found).headline.startswith(
        "Two threads of each rank use default_pg, and nothing orders them: rank 1 called broadcast"
    )
    calls = divergence.calls
    verdict.cause, verdict.collective = Cause.P2P_UNMATCHED, None
    graph.departures = [OrderDeparture(1, (), calls[1], calls[0], siblings=(2,))]
    assert explain_examined(found).headline.startswith(
        "Rank 1 called broadcast #3 of default_pg at train.py:16 (train) where rank 2, in its "
        "place in other replicas, called all_reduce #3 of default_pg at train.py:10 (train)"
    )
    verdict.cause = Cause.P2P_DEADLOCK
    graph.cycles = [Cycle((0, 1), (calls[0], calls[1]), True)]
    assert explain_examined(found).headline.startswith("Ranks 0 and 1 wait for each other in sends")
    assert "and rank 1 alone could have let all go on" in explain_examined(found).headline
    verdict.cause = Cause.MISSING_RANK
    graph.sinks = [Sink(1, calls[1], outside=False, by_exclusion=True, stalled=(0, 1))]
    assert explain_examined(found).headline.startswith(
        "The device of rank 1 has stopped in broadcast #3 of default_pg, or what passes there "
        "between ranks 0 and 1 does not come through"
    )


@pytest.mark.parametrize("cause", ALONE)
def test_causes_that_no_entry_has(cause: Cause) -> None:
    status, seen, expected = ALONE[cause]
    verdict = Verdict(
        status=status,
        cause=cause,
        culprits=[1],
        victims=[0, 2],
        collective=CollectiveRef("default_pg", "0", [0, 1, 2], 7, "all_reduce"),
        evidence=[Evidence("host", 1, seen)],
        confidence=0.9,
        summary="What the analyzer says.",
    )
    assert explain(verdict).headline == expected


@pytest.mark.parametrize(
    ("waiting", "told"),
    [
        ([0], "rank 0 waiting for the lock of save.lock and waits for ranks 0 and 2 meanwhile"),
        ([0, 2], "ranks 0 and 2 waiting for the lock of save.lock and waits for them meanwhile"),
    ],
)
def test_who_waits_for_a_lock_is_not_who_else_waits(waiting: list[int], told: str) -> None:
    held = "waits for the lock of save.lock, which rank 1 (pid 7) holds"
    verdict = Verdict(
        status=Status.HUNG,
        cause=Cause.PYTHON_DEADLOCK,
        culprits=[1],
        victims=[0, 2],
        evidence=[Evidence("file_locks", rank, held) for rank in waiting],
        confidence=0.9,
        summary="What the analyzer says.",
    )
    assert told in explain(verdict).headline


def test_who_left_a_loop_in_time_is_not_said_to_be_in_it() -> None:
    verdict = Verdict(
        status=Status.HUNG,
        cause=Cause.UNEVEN_INPUTS,
        culprits=[1],
        victims=[0, 2],
        evidence=[
            Evidence("stack", 0, "behind the loop at train.py:13 (run)"),
            Evidence("stack", 2, "in the loop at train.py:9 (run)"),
        ],
        confidence=0.9,
        summary="What the analyzer says.",
    )
    assert "left the loop that rank 2 is still in" in explain(verdict).headline


@pytest.mark.parametrize(
    ("culprits", "misfit"), [([1], "those of ranks 0 and 2"), ([0, 1], "the other's")]
)
def test_split_sizes_do_not_fit_those_of_who_expects_others(
    culprits: list[int], misfit: str
) -> None:
    verdict = Verdict(
        status=Status.CORRUPT,
        cause=Cause.SPLIT_MISMATCH,
        culprits=culprits,
        victims=[rank for rank in range(3) if rank not in culprits],
        collective=CollectiveRef("default_pg", "0", [0, 1, 2], 7, "all_to_all"),
        confidence=0.5,
        summary="Rank 0 sends 2 to rank 1, which expects 3" + UNTOLD * (len(culprits) > 1),
    )
    assert f"with split sizes that do not fit {misfit}; " in explain(verdict).headline


def test_every_cause_has_its_sentence() -> None:
    """But for those of the verdict alone, each is told of a job of the corpus."""
    told = {name.rpartition("/")[2].partition(".")[0] for name in OF_CORPUS}
    of_entries = {
        "gpu_oom": "more_than_fits",
        "gpu_fault": "gpu_off_the_bus",
        "fabric_stalled": "link_down",
        "slow_compute": "slow_backward",
        "imbalance": "imbalance_by_length",
        "rendezvous": "rendezvous_missing_rank",
        "size_mismatch": "size_mismatch_hangs",
    }
    for cause in Cause:
        assert cause in ALONE or of_entries.get(cause.value, cause.value) in told, cause


def test_a_time_is_told_in_the_unit_that_fits_it() -> None:
    spans = [0.038, 1.66, 41.4, 720, 11520]
    assert [duration(one) for one in spans] == ["38 ms", "1.7 s", "41 s", "12 min", "3.2 h"]


def test_ranks_with_many_gaps_are_counted() -> None:
    assert ranks_name([0, 1, 2, 5]) == "ranks 0-2 and 5"
    assert ranks_name(list(range(772, 1021, 8))) == "32 ranks from 772 to 1020"
