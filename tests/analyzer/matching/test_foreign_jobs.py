"""Jobs as people train them, healthy and hung, whole and in the middle of a step."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from foreign_jobs import START_NS, SYNC, TICK_NS, Group, Job, Op, Program, dump

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.verdict import Status, Verdict

Programs = dict[int, Program]


def three_dimensions() -> Programs:
    """Two tensor-parallel by two data-parallel by two pipeline stages."""
    world = Group("0", "default_pg", tuple(range(8)))
    programs: Programs = {}
    for rank in range(8):
        stage, replica, shard = rank // 4, rank // 2 % 2, rank % 2
        first = rank - shard
        tensor = Group(f"t{first}", "tensor", (first, first + 1))
        data = Group(f"d{stage}{shard}", "data", (4 * stage + shard, 4 * stage + 2 + shard))
        pipe = Group(f"p{replica}{shard}", "pipeline", (rank % 4, rank % 4 + 4))
        rows = programs[rank] = []
        for _ in range(4):
            for _ in range(3):
                if stage:
                    rows.append(Op(pipe, "recv", 11, peer=rank - 4))
                rows.append(Op(tensor, "_all_gather_base", 12, ((4,),), ((8,),)))
                rows.append(Op(tensor, "_reduce_scatter_base", 13, ((8,),), ((4,),)))
                if not stage:
                    rows.append(Op(pipe, "send", 14, peer=rank + 4, waits=False))
            rows += [Op(data, "all_reduce", 20 + n, ((100 + n,),), waits=False) for n in range(2)]
            rows += [Op(world, "all_reduce", 25, ((1,),)), SYNC]
    return programs


def experts() -> Programs:
    """Two replicas of four experts each: all_to_all with uneven splits, and a reduction."""
    world = Group("0", "default_pg", tuple(range(8)))
    programs: Programs = {rank: [] for rank in range(8)}
    random = Random(5)
    for _ in range(4):
        for replica in range(2):
            group = Group(f"e{replica}", "experts", tuple(range(4 * replica, 4 * replica + 4)))
            counts = [[random.randrange(9) for _ in range(4)] for _ in range(4)]
            for place, rank in enumerate(group.members):
                sent, taken = sum(counts[place]), sum(row[place] for row in counts)
                programs[rank] += [
                    Op(group, "all_to_all", 31, ((sent, 7),), ((taken, 7),)),
                    Op(group, "all_to_all", 32, ((taken, 7),), ((sent, 7),)),
                ]
        for rank in range(8):
            pair = Group(f"r{rank % 4}", "replicas", (rank % 4, rank % 4 + 4))
            programs[rank] += [Op(pair, "all_reduce", 33, waits=False), Op(world, "all_reduce", 34)]
            programs[rank].append(SYNC)
    return programs


def batched_pipeline() -> Programs:
    """Stages that exchange with both neighbours in batches."""
    world, pipe = (Group("0", "default_pg", (0, 1, 2)), Group("1", "pipeline", (0, 1, 2)))
    programs: Programs = {}
    for rank in range(3):
        rows = programs[rank] = []
        for _ in range(5):
            for line, backward in ((41, False), (42, True)):
                source, target = (rank + 1, rank - 1) if backward else (rank - 1, rank + 1)
                parts = []
                if 0 <= source < 3:
                    parts.append(Op(pipe, "recv", line, peer=source))
                if 0 <= target < 3:
                    parts.append(Op(pipe, "send", line, peer=target))
                rows.append(Op(pipe, "coalesced", line, batch=tuple(parts)))
            rows += [Op(world, "all_reduce", 43), SYNC]
    return programs


def sharded() -> Programs:
    """Parameters gathered ahead, gradients scattered behind, as FSDP2 does it."""
    world = Group("0", "default_pg", (0, 1, 2, 3))
    rows: Program = []
    for _ in range(4):
        gathers = [
            Op(world, "_all_gather_base", 51, ((9 + n,),), ((36 + 4 * n,),)) for n in range(3)
        ]
        scatters = [
            Op(world, "_reduce_scatter_base", 52, ((36 + 4 * n,),), ((9 + n,),), waits=False)
            for n in range(3)
        ]
        rows += [*gathers, *scatters, Op(world, "all_reduce", 53, ((1,),)), SYNC]
    return {rank: list(rows) for rank in range(4)}


def coalesced() -> Programs:
    """Uneven gathers out of broadcasts, a manager that leaves one entry, a ring of exchanges."""
    world = Group("0", "default_pg", (0, 1, 2))
    uneven = tuple(Op(world, "_broadcast_oop", 61, ((3 + n,),)) for n in range(3))
    programs: Programs = {}
    for rank in range(3):
        exchange = (
            Op(world, "send", 63, peer=(rank + 1) % 3),
            Op(world, "recv", 63, peer=(rank - 1) % 3),
        )
        programs[rank] = [
            Op(world, "ALLGATHER_coalesced", 61, batch=uneven),
            Op(world, "allgather_into_tensor_coalesced", 62, ((4,), (5,)), ((12,), (15,))),
            Op(world, "coalesced", 63, batch=exchange),
            Op(world, "all_reduce", 64),
            SYNC,
        ] * 4
    return programs


JOBS: list[Callable[[], Programs]] = [
    three_dimensions,
    experts,
    batched_pipeline,
    sharded,
    coalesced,
]
jobs = pytest.mark.parametrize("make", JOBS, ids=lambda make: make.__name__)


def judge(folder: Path, job: Job, random: Random, *, late_s: float) -> Verdict:
    """The verdict on dumps in rings of different sizes that were written ``late_s`` from now."""
    for rank in job.programs:
        clock_ns = random.randrange(-(10**10), 10**10)
        ring = random.choice([None, None, 40])
        path = folder / f"trace_{rank}"
        path.write_bytes(pickle.dumps(dump(job, rank, ring=ring, clock_ns=clock_ns), 2))
        written = START_NS + job.now * TICK_NS + clock_ns + int(late_s * 1e9)
        os.utime(path, ns=(written, written))
    return analyze(folder)


@jobs
def test_a_job_that_is_through_is_healthy(tmp_path: Path, make: Callable[[], Programs]) -> None:
    job = Job(make(), Random(1))
    job.run()
    assert job.through
    assert judge(tmp_path, job, Random(2), late_s=30).status is Status.HEALTHY


@jobs
def test_a_job_that_is_through_and_idle_may_stand_still(
    tmp_path: Path, make: Callable[[], Programs]
) -> None:
    job = Job(make(), Random(1))
    job.run()
    assert judge(tmp_path, job, Random(2), late_s=900).status is Status.INCONCLUSIVE


@jobs
@pytest.mark.parametrize("seed", range(3))
def test_a_job_in_the_middle_of_a_step_accuses_nobody(
    tmp_path: Path, make: Callable[[], Programs], seed: int
) -> None:
    job = Job(make(), Random(seed))
    job.run(30 + 23 * seed)
    assert not job.through
    waits = any(not one.done for issued in job.issued.values() for one in issued)
    verdict = judge(tmp_path, job, Random(seed), late_s=0.02)
    assert verdict.status is (Status.INCONCLUSIVE if waits else Status.HEALTHY)
    assert (verdict.culprits, verdict.findings) == ([], [])


@jobs
@pytest.mark.parametrize("seed", range(3))
def test_the_rank_that_stops_is_named(
    tmp_path: Path, make: Callable[[], Programs], seed: int
) -> None:
    programs = make()
    random = Random(seed)
    culprit = random.choice(sorted(programs))
    stops = random.randrange(len(programs[culprit]) // 3, len(programs[culprit]) - 1)
    programs[culprit] = programs[culprit][:stops]
    job = Job(programs, random)
    job.run()
    verdict = judge(tmp_path, job, random, late_s=900)
    named = {rank for finding in verdict.findings for rank in finding.culprits}
    assert (verdict.status, named) == (Status.HUNG, {culprit})


@jobs
@pytest.mark.parametrize("seed", range(2))
def test_without_the_dump_of_the_rank_that_stops_nobody_else_is(
    tmp_path: Path, make: Callable[[], Programs], seed: int
) -> None:
    programs = make()
    random = Random(seed)
    culprit = random.choice(sorted(programs))
    programs[culprit] = programs[culprit][: len(programs[culprit]) // 2]
    job = Job(programs, random)
    job.run()
    judge(tmp_path, job, random, late_s=900)
    (tmp_path / f"trace_{culprit}").unlink()
    verdict = analyze(tmp_path)
    assert {rank for finding in verdict.findings for rank in finding.culprits} <= {culprit}
    assert verdict.inputs.missing_ranks == [culprit]
