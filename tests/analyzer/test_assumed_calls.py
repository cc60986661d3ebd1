"""Ranks without entries make the calls that their peers show."""

from __future__ import annotations

from pathlib import Path

import pytest

from hanglab.analyzer.assumed_calls import RecordedCall, assume_calls
from hanglab.analyzer.hang_similarity import recognise
from hanglab.analyzer.program import Action, ProgramGroup
from hanglab.analyzer.program.job_dumps import JobOptions, SimulatedJob, write_dump
from hanglab.analyzer.replayable import read_replayable

GROUPS = (ProgramGroup("0", (0, 1, 2), "default_pg"), ProgramGroup("1", (1, 2), "pair"))


def call(
    op: str, group: int, seq: int | None, at: int, *, finished: bool = True, peer: int | None = None
) -> RecordedCall:
    return RecordedCall(Action(op, group, peer=peer), finished, False, seq, at)


@pytest.mark.parametrize("ahead", [0, 500, -500])
def test_they_make_them_in_the_order_of_the_job_whatever_clocks_say(ahead: int) -> None:
    calls = [
        [call("all_reduce", 0, 1, 10), call("barrier", 0, 2, 30, finished=False)],
        [
            call("all_reduce", 0, 1, 10 + ahead),
            call("send", 1, None, 15 + ahead, peer=1),
            call("all_gather", 1, 1, 20 + ahead),
            call("barrier", 0, 2, 30 + ahead, finished=False),
        ],
        [],
    ]
    assert list(assume_calls(calls, GROUPS, culprits=[])) == [(2, True)]
    made = calls[2]
    assert [one.action.op for one in made] == ["all_reduce", "recv", "all_gather", "barrier"]
    # It waits in what its peers wait in, and takes the message from who sent it.
    assert [one.posted for one in made] == [True, True, True, False]
    assert made[1].action.peer == 0


def test_what_a_culprit_alone_called_is_not_theirs() -> None:
    calls = [
        [call("all_reduce", 0, 1, 10), call("broadcast", 0, 2, 20, finished=False)],
        [call("all_reduce", 0, 1, 10), call("barrier", 0, 2, 20, finished=False)],
        [],
    ]
    told = [list(one) for one in calls]
    assert list(assume_calls(told, GROUPS, culprits=[0])) == [(2, True)]
    assert [one.action.op for one in told[2]] == ["all_reduce", "barrier"]
    # A culprit without entries made what its peers finished, and no more.
    told = [list(one) for one in calls]
    assert list(assume_calls(told, GROUPS, culprits=[2])) == [(2, False)]
    assert [one.action.op for one in told[2]] == ["all_reduce"]


def test_a_damaged_dump_is_none(tmp_path: Path) -> None:
    job = SimulatedJob(JobOptions(8, "world", "stop", operations=60, seed=2))
    innocent = next(rank for rank in range(8) if rank not in job.truth.culprits)
    for rank, data in job.dumps():
        cut = data[: len(data) // 2] if rank == innocent else data
        write_dump(tmp_path, rank, cut, job.written_ns(rank))
    read = read_replayable(tmp_path)
    assert any(f"rank {innocent}'s dump is damaged" in told for told in read.assumptions)
    similarity, _ = recognise(read)
    assert similarity.cause and similarity.kept_verdict.culprits == set(job.truth.culprits)
