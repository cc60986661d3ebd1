"""Programs that can be run, read out of dumps with gaps."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from hanglab.analyzer.program.job_dumps import JobOptions, SimulatedJob, write_dump
from hanglab.analyzer.program.program import Program
from hanglab.analyzer.program.simulation import simulate
from hanglab.analyzer.replayable import NotReplayable, ReplayableJob, read_replayable, small_sizes


def read(folder: Path, options: JobOptions) -> tuple[ReplayableJob, list[int]]:
    job = SimulatedJob(options)
    for rank, data in job.dumps():
        write_dump(folder, rank, data, job.written_ns(rank))
    return read_replayable(folder), job.truth.culprits


@pytest.mark.parametrize("layout", ["world", "hsdp", "3d", "moe"])
@pytest.mark.parametrize("ring", [None, 25])
def test_what_is_read_hangs_in_the_simulation_too(
    tmp_path: Path, layout: str, ring: int | None
) -> None:
    options = JobOptions(16, layout, "stop", operations=50, seed=1, missing=2, ring=ring)
    job, culprits = read(tmp_path, options)
    assert job.backend == "nccl" and job.verdict.culprits == culprits
    actions = tuple(
        tuple(replace(c.action, overlap=c.posted or c.finished) for c in mine) for mine in job.calls
    )
    program = Program(job.groups, actions)
    run = simulate(program, "gloo")
    assert run.stuck
    for rank, mine in enumerate(job.calls):
        finished = Counter(c.action.op for c in mine if c.finished)
        again = Counter(i.action.op for i in run.ranks[rank].issued if i.done)
        assert finished <= again, rank
    assert all(call.finished for rank in culprits for call in job.calls[rank])
    assert sum("left no entries" in sentence for sentence in job.assumptions) == 2


def test_equal_sizes_stay_equal_and_small(tmp_path: Path) -> None:
    job, _ = read(tmp_path, JobOptions(8, "world", "size", operations=20))
    sizes = small_sizes(job.calls)
    assert len(set(sizes.values())) == len(sizes) and max(sizes.values()) < 10
    assert {call.action.numel for mine in job.calls for call in mine} <= set(sizes)


def test_a_job_that_ended_is_not_replayable(tmp_path: Path) -> None:
    with pytest.raises(NotReplayable, match="no hang") as told:
        read(tmp_path, JobOptions(4, "world", "none", operations=20))
    assert told.value.exit_code == 2 and told.value.advice


def test_dumps_that_contradict_each_other_are_refused_with_what_they_say(tmp_path: Path) -> None:
    """Rank 2's dump has other members of the group that its peers are in."""
    job = SimulatedJob(JobOptions(4, "world", "skip", operations=20))
    for rank, data in job.dumps():
        if rank == 2:
            dump = pickle.loads(data)
            for group in dump["pg_config"].values():
                group["ranks"] = "[1, 2]"
            data = pickle.dumps(dump)
        write_dump(tmp_path, rank, data, job.written_ns(rank))
    with pytest.raises(NotReplayable, match=r"contradict each other: rank [12] is in two") as told:
        read_replayable(tmp_path)
    assert "ranks 0-3" in str(told.value) and "ranks 1 and 2" in str(told.value)
    assert told.value.exit_code == 2
