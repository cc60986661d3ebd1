"""What a real gloo job leaves at the Python boundary."""

from __future__ import annotations

import pickle
import signal

import pytest
from conditions import wait_for
from recorder_support import Job

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.progress import read_progress
from hanglab.recorder.case.progress_records import OperationCall


def operations(job: Job, rank: int) -> list[OperationCall]:
    progress = job.rank(rank).read(files.PROGRESS)
    return [] if progress is None else progress.operations


@pytest.fixture
def job(start_job):
    job = start_job("operations_program.py")
    for rank in (0, 1):
        wait_for(lambda rank=rank: job.printed(rank).count("\n") >= 2, "the operations")
    return job


def test_operations_and_their_arguments(job):
    (job.runtime / "store.go").touch()
    assert [job.status(rank) for rank in (0, 1)] == [0, 0]
    found = operations(job, 0)
    assert [o.method for o in found] == [
        "new_group", "allreduce", "broadcast", "allreduce", "all_to_all_single", "send", "send",
        "gather", "scatter", "reduce", "barrier", "monitored_barrier", "all_to_all_single", "recv",
    ]  # fmt: skip
    _, maximum, broadcast, paired, split, send, tagged, gather, scatter, reduce, *rest = found
    barrier, monitored, wrong, unmatched = rest
    assert (maximum.reduce_op, maximum.shape, maximum.dtype, maximum.numel) == (
        "max", (3, 4), "Float", 12,
    )  # fmt: skip
    assert (broadcast.root, broadcast.dtype) == (1, "Double")
    assert paired.group == "1" and maximum.group == "0"
    assert split.splits == ((1, 2), (1, 2))
    assert (send.peer, send.tag, tagged.peer, tagged.tag) == (1, 0, 1, 3)
    assert (gather.root, scatter.root, reduce.root, reduce.reduce_op) == (0, 0, 1, "min")
    assert barrier.shape is None and barrier.completed and monitored.completed
    assert wrong.failed and not wrong.completed
    assert not unmatched.completed and unmatched.returned_ns and unmatched.wait_entered_ns is None
    for operation in found[:-2]:
        assert operation.completed, operation
        assert operation.function in ("train", "<module>")
        assert operation.file.endswith("operations_program.py") and operation.line > 0
        assert operation.returned_ns is not None
        assert operation.entered_ns <= operation.returned_ns
    received = [o for o in operations(job, 1) if o.method.startswith("recv")]
    assert [(o.method, o.peer) for o in received] == [
        ("recv", 0), ("recv_anysource", -1), ("recv", 0),
    ]  # fmt: skip
    assert job.read().problems == []


def test_group_sequence_number_is_one_less_than_the_entrys_operation_id(job):
    (job.runtime / "store.go").touch()
    job.status(0)
    case = job.rank(0)
    assert case.read(files.FLIGHT_RECORDER) is not None
    entries = pickle.loads(case.read(files.FLIGHT_RECORDER))["entries"]
    recorded = {
        (o.group, o.group_seq + 1): o.method
        for o in operations(job, 0)
        if o.group_seq is not None and o.group
    }
    joined = {
        (entry["process_group"][0], entry["op_id"]): entry["profiling_name"] for entry in entries
    }
    names = {
        "allreduce": "gloo:all_reduce",
        "all_to_all_single": "gloo:all_to_all",
        "monitored_barrier": None,
        "send": None,
        "recv": None,
    }
    for key, method in recorded.items():
        expected = names.get(method, f"gloo:{method}")
        if expected is not None and joined.get(key) is not None:
            assert joined[key] == expected
    assert len(recorded.keys() & joined.keys()) >= 8


def test_groups_with_members_and_counters(job):
    (job.runtime / "store.go").touch()
    job.status(1)
    case = job.rank(1)
    assert [(g.id, g.description, g.ranks, g.backend) for g in case.read(files.GROUPS)] == [
        ("0", "default_pg", [0, 1], "gloo"),
        ("1", "pair", [0, 1], "gloo"),
    ]
    progress = case.read(files.PROGRESS)
    assert progress is not None
    assert {c.pg_id for c in progress.counters} == {0, 1}
    assert progress.phase == "exiting"
    assert [step for step, _ in progress.steps] == [0, 1]
    assert [(t.section, t.kind, t.count) for t in progress.section_totals] == [
        ("work", "", 1), ("waiting", "", 1),
    ]  # fmt: skip


def test_progress_survives_a_kill(job):
    before = operations(job, 0)
    job.kill(0)
    assert job.status(0) == signal.SIGKILL
    progress = job.rank(0).read(files.PROGRESS)
    assert progress is not None
    assert [o.method for o in progress.operations] == [o.method for o in before]
    assert progress.phase == "running"
    assert [section.section for section in progress.open_sections] == ["waiting"]
    assert job.rank(0).read(files.GROUPS), "membership must be on disk before the end"


def test_progress_is_readable_while_it_is_written(job):
    path = job.rank(0).folder / files.PROGRESS.name
    beats = set()

    def seen_two_beats() -> bool:
        beats.add(read_progress(path.read_bytes()).heartbeat_mono_ns)
        return len(beats) >= 2

    wait_for(seen_two_beats, "a second heartbeat")
