"""Numbers of calls that the boundary alone knows are those that dumps give, or would give, them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hanglab.analyzer.facts.boundary import join
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.flight_recorder.content import read_content
from hanglab.analyzer.flight_recorder.decoding import Decoded
from hanglab.recorder.case.progress_records import OperationCall, Progress
from hanglab.recorder.case.records import GroupRecord


def read_dump(
    rank: int, reductions: Sequence[tuple[int, int, int]], *, first_record: int
) -> RankDump:
    """A buffer of gloo: number among collectives, number of any kind and time of each."""
    entries = [
        {
            "record_id": first_record + i, "pg_id": 0, "process_group": ("0", "default_pg"),
            "collective_seq_id": seq, "p2p_seq_id": 0, "op_id": op_id,
            "profiling_name": "gloo:all_reduce", "time_created_ns": at, "input_sizes": [[4]],
            "input_dtypes": ["Float"], "output_sizes": [[4]], "output_dtypes": ["Float"],
            "state": "scheduled", "retired": True, "is_p2p": False, "frames": [],
        }
        for i, (seq, op_id, at) in enumerate(reductions)
    ]  # fmt: skip
    content = Decoded({"version": "2.10", "pg_config": {}, "entries": entries})
    return read_content(content, rank=rank, source="fr.pkl", from_json=False, contained=False)


METHODS = ("allreduce", "monitored_barrier", "allreduce", "monitored_barrier", "allreduce")


@pytest.mark.parametrize(
    # As torch 2.13 counts: rank 0 exchanges two messages with each of three others.
    ("rank", "counters"),
    [(0, (0, 1, 7, 8, 14)), (3, (0, 1, 3, 4, 6))],
)
def test_a_monitored_barrier_raises_them_by_two_on_every_rank(
    rank: int, counters: tuple[int, ...]
) -> None:
    operations = [
        OperationCall(i, method, "0", i + 1, returned_ns=i + 1, completed=True, group_seq=counter)
        for i, (method, counter) in enumerate(zip(METHODS, counters, strict=True))
    ]
    progress = Progress(1, rank, 0, 0, -1, None, len(operations), operations)
    groups = [GroupRecord(id="0", ranks=[0, 1, 2, 3], backend="gloo", description="default_pg")]
    dump = join(rank, None, progress, groups, "case")
    assert dump is not None and dump.entries is not None
    # A barrier stands under the first of its two.
    assert dump.entries.seq.tolist() == [1, 2, 4, 5, 7]


@pytest.mark.parametrize(("rank", "step"), [(0, 6), (2, 2)])
@pytest.mark.parametrize("kept", [1, 2])
def test_a_barrier_is_numbered_by_the_call_before_it_in_the_buffer(
    rank: int, step: int, kept: int
) -> None:
    """The boundary's own ring has dropped calls: how many barriers were among them nobody knows."""
    reductions = [(7, 10 + step - 2, 10), (8, 11 + step - 2, 30)][:kept]
    first = 11 + step - 2
    ring = read_dump(rank, reductions, first_record=5)
    operations = [OperationCall(4, "allreduce", "0", 9, 12, completed=True, group_seq=first - 2)]
    operations += [
        OperationCall(
            5, "monitored_barrier", "0", 40, 45, completed=True, group_seq=first + kept - 2
        ),
        OperationCall(6, "monitored_barrier", "0", 50, group_seq=first + kept - 2 + step),
    ]
    progress = Progress(1, rank, 0, 0, -1, None, 7, operations)
    groups = [GroupRecord(id="0", ranks=[0, 1, 2, 3], backend="gloo", description="default_pg")]
    dump = join(rank, ring, progress, groups, "case")
    assert dump is not None and dump.entries is not None
    assert dump.entries.seq.tolist() == [*[7, 8][:kept], 7 + kept, 9 + kept]
    assert dump.entries.retired.tolist() == [True] * (kept + 1) + [False]


def test_a_barrier_that_is_older_than_the_buffer_is_left_out() -> None:
    """Between it and the first entry may be others."""
    ring = read_dump(1, [(7, 9, 40)], first_record=5)
    operations = [
        OperationCall(0, "monitored_barrier", "0", 5, 8, completed=True, group_seq=2),
        OperationCall(1, "allreduce", "0", 39, 41, completed=True, group_seq=8),
    ]
    progress = Progress(1, 1, 0, 0, -1, None, 2, operations)
    groups = [GroupRecord(id="0", ranks=[0, 1, 2, 3], backend="gloo", description="default_pg")]
    dump = join(1, ring, progress, groups, "case")
    assert dump is not None and dump.entries is not None
    assert dump.entries.seq.tolist() == [7]


def test_messages_are_of_the_thread_that_the_buffer_names() -> None:
    """Gloo's buffer has none: the boundary knows of a thread its id alone."""
    ring = read_dump(0, [(1, 1, 10), (2, 3, 30)], first_record=0)
    assert ring.entries is not None
    ring.entries.threads = ["python 7001"]
    operations = [
        OperationCall(0, "allreduce", "0", 10, 11, completed=True, group_seq=0, thread_id=7001),
        OperationCall(1, "send", "0", 20, 21, group_seq=1, peer=1, thread_id=7001),
        OperationCall(2, "allreduce", "0", 30, 31, completed=True, group_seq=2, thread_id=7001),
        OperationCall(3, "recv", "0", 40, 41, group_seq=3, peer=1, thread_id=7002),
    ]
    progress = Progress(1, 0, 0, 0, -1, None, len(operations), operations)
    groups = [GroupRecord(id="0", ranks=[0, 1], backend="gloo", description="default_pg")]
    dump = join(0, ring, progress, groups, "case")
    assert dump is not None and dump.entries is not None
    entries = dump.entries
    assert entries.is_p2p.tolist() == [False, True, False, True]
    made_by = [entries.threads[thread] for thread in entries.thread.tolist()]
    assert made_by == ["python 7001"] * 3 + ["7002"]
