"""Dumps of whole jobs: the bytes of a plain rendering, and faults that the analyzer names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.program.job_dumps import (
    KINDS,
    JobOptions,
    NoPlace,
    SimulatedJob,
    write_dump,
)
from hanglab.analyzer.program.layouts import LAYOUTS, LayoutError, make_layout
from hanglab.analyzer.program.program import Program
from hanglab.analyzer.program.rendering import Style, render, to_pickle
from hanglab.analyzer.program.simulation import simulate
from hanglab.analyzer.verdict import Status
from hanglab.recorder.errors import HanglabError

#: What a fault is called in a verdict.
CAUSES = {
    "skip": {"skipped_collective"},
    "extra": {"collective_mismatch"},
    "wrong_operation": {"collective_mismatch"},
    "size": {"size_mismatch"},
    "dtype": {"dtype_mismatch"},
    "stop": {"missing_rank"},
    "device_stop": {"missing_rank"},
    "group_order": {"group_order"},
    "p2p_deadlock": {"p2p_deadlock"},
    "unmatched": {"p2p_unmatched"},
    "stray": {"p2p_unmatched"},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_healthy_jobs_have_the_bytes_that_a_plain_rendering_of_all_steps_has(layout: str) -> None:
    options = JobOptions(32, layout, "none", operations=60, ring=50, clock_offset_ms=700)
    job = SimulatedJob(options)
    parts = make_layout(layout, 32)
    steps = -(-60 // min(map(len, parts.steps)))
    run = simulate(Program(parts.groups, tuple(step * steps for step in parts.steps)), "nccl")
    dumps = dict(job.dumps())
    assert len(dumps) == 32
    for rank, data in dumps.items():
        clock = job.clocks_ns[rank]
        assert clock != 0
        style = Style(depth=6, ring=50, clock_ns={rank: clock})
        assert data == to_pickle(render(run, rank, style)), f"rank {rank}"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_stopped_ranks_leave_the_bytes_of_a_plain_rendering(layout: str) -> None:
    job = SimulatedJob(JobOptions(16, layout, "stop", operations=40, seed=5))
    parts = make_layout(layout, 16)
    steps = -(-40 // min(map(len, parts.steps)))
    (culprit,) = job.truth.culprits
    mine = parts.steps[culprit]
    at = [action.site for action in mine].index(job.truth.line or 0)
    program = Program(parts.groups, tuple(step * steps for step in parts.steps))
    run = simulate(program, "nccl", stops={culprit: (steps - 2) * len(mine) + at})
    for rank, data in job.dumps():
        style = Style(depth=6, clock_ns={rank: job.begun_ns})
        assert data == to_pickle(render(run, rank, style)), f"rank {rank}"


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_verdict_names_what_the_truth_says(layout: str, tmp_path: Path) -> None:
    named = 0
    for kind in sorted(CAUSES):
        try:
            job = SimulatedJob(JobOptions(16, layout, kind, operations=60, seed=2))
        except NoPlace:
            continue
        folder = tmp_path / kind
        folder.mkdir()
        for rank, data in job.dumps():
            write_dump(folder, rank, data, job.written_ns(rank))
        verdict = analyze(folder)
        assert verdict.status is Status.HUNG, kind
        assert verdict.cause is not None and verdict.cause.value in CAUSES[kind], kind
        assert set(verdict.culprits) & set(job.truth.culprits), kind
        named += 1
    assert named >= 7


def test_every_kind_of_fault_has_a_layout_with_a_place_for_it() -> None:
    assert set(KINDS) == {"none", *CAUSES}
    for kind in CAUSES:
        placed = []
        for layout in LAYOUTS:
            parts = make_layout(layout, 16)
            try:
                SimulatedJob(JobOptions(16, layout, kind))
            except NoPlace:
                continue
            placed.append(len(parts.groups))
        assert placed, kind


def test_missing_dumps_are_never_the_culprits() -> None:
    options = JobOptions(16, "world", "stop", operations=20, missing=14)
    for seed in range(5):
        job = SimulatedJob(replace(options, seed=seed))
        left = [rank for rank, _ in job.dumps()]
        assert len(left) == 2 and set(job.truth.culprits) <= set(left)
    with pytest.raises(NoPlace, match="15 dumps cannot be missing"):
        SimulatedJob(replace(options, missing=15))


@pytest.mark.parametrize(
    ("layout", "ranks"), [("3d", 12), ("4d", 24), ("hsdp", 7), ("moe", 2), ("world", 1)]
)
def test_ranks_that_fit_no_layout_are_told(layout: str, ranks: int) -> None:
    with pytest.raises(LayoutError) as told:
        SimulatedJob(JobOptions(ranks, layout, "none"))
    assert str(ranks) in str(told.value) and told.value.advice and told.value.exit_code == 64


def test_a_fault_without_a_place_is_told_with_layouts_that_have_one() -> None:
    with pytest.raises(HanglabError, match="unmatched") as told:
        SimulatedJob(JobOptions(8, "fsdp", "unmatched"))
    assert "3d" in told.value.advice


def test_the_operation_that_a_verdict_names_is_one_of_the_culprits(tmp_path: Path) -> None:
    """A peer with another pipeline shows what was left out; its message is not the one."""
    job = SimulatedJob(JobOptions(8, "3d", "unmatched", operations=200, seed=5, missing=1, ring=80))
    for rank, data in job.dumps():
        write_dump(tmp_path, rank, data, job.written_ns(rank))
    verdict = analyze(tmp_path)
    assert verdict.culprits == job.truth.culprits and verdict.collective is not None
    assert set(verdict.culprits) < set(verdict.collective.ranks)
