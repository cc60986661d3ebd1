"""Numbers of collectives that the boundary alone knows are those that dumps give them."""

from __future__ import annotations

import pytest

from hanglab.analyzer.facts.boundary import join
from hanglab.recorder.case.progress_records import OperationCall, Progress
from hanglab.recorder.case.records import GroupRecord

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
    assert dump.entries.seq.tolist() == [1, 4, 7]
