"""Folders in which dumps of several jobs, attempts or moments lie: one of them is judged."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from graph_rows import Row, dump_object

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.program.job_dumps import JobOptions, SimulatedJob
from hanglab.analyzer.program.torch_pickle import torch_pickle
from hanglab.analyzer.verdict import Status

START_NS = 1_763_000_000_000_000_000
SECOND_NS = 1_000_000_000
#: Where a job's dumps lie, given its name and a rank.
Layout = Callable[[str, int], str]

LAYOUTS: dict[str, Layout] = {
    "folders": lambda job, rank: f"{job}/rank_{rank}",
    "hosts": lambda job, rank: f"{job}/host{rank // 2}/nccl_trace_rank_{rank}.pkl",
    "prefixes": lambda job, rank: f"{job}_rank_{rank}",
    "suffixes": lambda job, rank: f"nccl_trace_rank_{rank}.{job}",
    "names of their own": lambda job, rank: f"{job}-{rank * 977 % 89}x_rank{rank}.pickle",
}
layouts = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())


def rows(steps: int, *, waits: bool = False, op: str = "all_reduce") -> list[Row]:
    done = [Row(op if n % 3 else "broadcast", n) for n in range(1, steps + 1)]
    return [*done, Row(op, steps + 1, done=False)] if waits else done


def write(
    folder: Path,
    layout: Layout,
    job: str,
    ranks: dict[int, list[Row]],
    *,
    began_s: float,
    step_ms: float = 10.0,
    world: int | None = None,
    first: int = 0,
    backend: str = "nccl",
) -> None:
    """Dumps of ``ranks``; ``first`` is the number of the oldest record in their rings."""
    members = {"0": range(len(ranks) if world is None else world)}
    for rank, mine in ranks.items():
        dump = dump_object(mine, members=members, backend=backend)
        for index, entry in enumerate(dump["entries"]):
            entry["record_id"] = index
            later_ms = index * step_ms + rank * 0.013 + index % 5 * 0.7
            entry["time_created_ns"] = START_NS + int(began_s * SECOND_NS + later_ms * 1e6)
        dump["entries"] = dump["entries"][first:]
        path = folder / layout(job, rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(torch_pickle(dump))
        written_ns = dump["entries"][-1]["time_created_ns"] + 10 * SECOND_NS
        os.utime(path, ns=(written_ns, written_ns))


def hung(size: int, culprit: int, steps: int = 40, op: str = "all_reduce") -> dict[int, list[Row]]:
    """Rank ``culprit`` calls another operation than its peers under the last number."""
    ranks = {rank: rows(steps, waits=True, op=op) for rank in range(size)}
    ranks[culprit] = [*rows(steps, op=op), Row("all_gather", steps + 1, done=False)]
    return ranks


def healthy(size: int, steps: int, op: str = "all_reduce") -> dict[int, list[Row]]:
    return {rank: rows(steps, op=op) for rank in range(size)}


def files_of(job: str, names: Iterator[str]) -> bool:
    return all(job in name for name in names)


@pytest.mark.few(12)
@layouts
@pytest.mark.parametrize(("size", "culprit"), [(4, 2), (3, 0), (8, 7)])
@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_the_later_attempt_is_judged(
    tmp_path: Path, layout: Layout, size: int, culprit: int, backend: str
) -> None:
    """The first was healthy and went on for longer."""
    write(tmp_path, layout, "attempt_0", healthy(size, 300), began_s=0, backend=backend)
    write(tmp_path, layout, "attempt_1", hung(size, culprit), began_s=60, backend=backend)
    verdict = analyze(tmp_path)
    assert (verdict.status, verdict.culprits) == (Status.HUNG, [culprit])
    aside = verdict.inputs.set_aside
    assert len(aside) == size
    assert files_of("attempt_0", (one.file for one in aside))
    assert all("of an earlier attempt" in one.reason for one in aside)
    assert "attempt_1" in (verdict.inputs.world or "")
    assert verdict.inputs.unusable == []


@layouts
def test_what_hung_before_a_restart_is_told_beside_a_healthy_attempt(
    tmp_path: Path, layout: Layout
) -> None:
    write(tmp_path, layout, "attempt_0", hung(4, 1, steps=200), began_s=0)
    write(tmp_path, layout, "attempt_1", healthy(4, 100), began_s=900)
    verdict = analyze(tmp_path)
    assert (verdict.status, verdict.culprits) == (Status.HUNG, [1])
    assert files_of("attempt_1", (one.file for one in verdict.inputs.set_aside))
    assert "of a later attempt" in verdict.inputs.set_aside[0].reason


@layouts
def test_an_attempt_that_tells_nothing_is_past(tmp_path: Path, layout: Layout) -> None:
    """Long idle when its files were written, with nothing open: by itself it is inconclusive."""
    write(tmp_path, layout, "attempt_0", healthy(4, 200), began_s=0)
    write(tmp_path, layout, "attempt_1", healthy(4, 100), began_s=900)
    for path in tmp_path.rglob("*"):
        if path.is_file() and "attempt_0" in str(path.relative_to(tmp_path)):
            written_s = path.stat().st_mtime + 300
            os.utime(path, (written_s, written_s))
    verdict = analyze(tmp_path)
    assert (verdict.status, verdict.culprits) == (Status.HEALTHY, [])
    assert files_of("attempt_0", (one.file for one in verdict.inputs.set_aside))


@layouts
@pytest.mark.parametrize(("sizes", "culprit"), [((4, 4), 2), ((4, 2), 1), ((2, 6), 5)])
@pytest.mark.parametrize("hangs", ["actor", "rollout"])
def test_of_two_jobs_the_one_that_hangs_is_judged(
    tmp_path: Path, layout: Layout, sizes: tuple[int, int], culprit: int, hangs: str
) -> None:
    """They run side by side, and the healthy one has more to tell."""
    size = sizes[0] if culprit < sizes[0] and hangs == "actor" else sizes[1]
    culprit = min(culprit, size - 1)
    other = "rollout" if hangs == "actor" else "actor"
    write(tmp_path, layout, hangs, hung(size, culprit), began_s=3)
    beside = healthy(sizes[0] + sizes[1] - size, 500, op="_all_gather_base")
    write(tmp_path, layout, other, beside, began_s=0, step_ms=7)
    verdict = analyze(tmp_path)
    if size == 2:  # two ranks that differ: nothing tells which one is wrong
        assert verdict.status in (Status.HUNG, Status.INCONCLUSIVE)
    else:
        assert (verdict.status, verdict.culprits) == (Status.HUNG, [culprit])
    assert verdict.inputs.ranks == size
    assert files_of(other, (one.file for one in verdict.inputs.set_aside))
    assert any("judged by the files" in one.detail for one in verdict.evidence)


def test_jobs_whose_clocks_agree_are_parted_by_what_they_called(tmp_path: Path) -> None:
    """Times that a tool has made up may be the same ones in each job."""
    write(tmp_path, LAYOUTS["prefixes"], "actor", hung(4, 2), began_s=0)
    beside = healthy(4, 250, op="_all_gather_base")
    write(tmp_path, LAYOUTS["prefixes"], "rollout", beside, began_s=0)
    verdict = analyze(tmp_path)
    assert (verdict.status, verdict.culprits) == (Status.HUNG, [2])
    assert files_of("rollout", (one.file for one in verdict.inputs.set_aside))


def test_simulated_jobs_of_one_layout_are_parted(tmp_path: Path) -> None:
    for seed, fault in enumerate(("skip", "none")):
        job = SimulatedJob(JobOptions(4, "world", fault, operations=200, seed=seed))
        for rank, data in job.dumps():
            (tmp_path / f"job{seed}_rank_{rank}").write_bytes(data)
        if fault == "skip":
            (culprit,) = job.truth.culprits
    verdict = analyze(tmp_path)
    assert (verdict.status, verdict.culprits) == (Status.HUNG, [culprit])
    assert files_of("job1", (one.file for one in verdict.inputs.set_aside))


@layouts
def test_a_job_that_hung_early_is_not_forgotten_for_one_that_goes_on(
    tmp_path: Path, layout: Layout
) -> None:
    """The ring of the other has lost its beginning: it may have run beside the first from then."""
    write(tmp_path, layout, "actor", hung(4, 3), began_s=0)
    write(tmp_path, layout, "rollout", healthy(4, 900, op="barrier"), began_s=0, first=500)
    verdict = analyze(tmp_path)
    assert (verdict.status, verdict.culprits) == (Status.HUNG, [3])


@layouts
def test_several_healthy_jobs_are_healthy(tmp_path: Path, layout: Layout) -> None:
    write(tmp_path, layout, "actor", healthy(4, 60), began_s=0)
    write(tmp_path, layout, "rollout", healthy(4, 90, op="barrier"), began_s=0.2)
    verdict = analyze(tmp_path)
    assert verdict.status is Status.HEALTHY
    assert len(verdict.inputs.set_aside) == 4


def test_three_attempts(tmp_path: Path) -> None:
    layout = LAYOUTS["hosts"]
    for attempt in range(3):
        ranks = hung(4, 2, steps=20) if attempt == 2 else healthy(4, 100 - attempt)
        write(tmp_path, layout, f"attempt_{attempt}", ranks, began_s=attempt * 30)
    verdict = analyze(tmp_path)
    assert (verdict.status, verdict.culprits) == (Status.HUNG, [2])
    assert len(verdict.inputs.set_aside) == 8


def test_a_stale_file_of_a_larger_job_is_set_aside(tmp_path: Path) -> None:
    layout = LAYOUTS["prefixes"]
    write(tmp_path, layout, "job", {7: rows(80)}, began_s=-3600, world=8)
    write(tmp_path, layout, "job", hung(4, 1), began_s=0)
    verdict = analyze(tmp_path)
    assert (verdict.status, verdict.culprits) == (Status.HUNG, [1])
    assert verdict.inputs.missing_ranks == []
    assert [one.file for one in verdict.inputs.set_aside] == ["job_rank_7"]


@layouts
def test_two_dumps_of_one_process_stay_one_job(tmp_path: Path, layout: Layout) -> None:
    """Taken a moment apart: the later one of each rank counts, as ever."""
    write(tmp_path, layout, "first", healthy(4, 30), began_s=0)
    write(tmp_path, layout, "second", hung(4, 2), began_s=0)
    verdict = analyze(tmp_path)
    assert (verdict.status, verdict.culprits) == (Status.HUNG, [2])
    assert verdict.inputs.set_aside == []
    assert verdict.inputs.world is None
    assert len(verdict.inputs.unusable) == 4


def test_hosts_in_folders_of_their_own_are_one_job(tmp_path: Path) -> None:
    write(tmp_path, lambda _, rank: f"node{rank // 2}/trace_{rank}", "", hung(6, 4), began_s=0)
    verdict = analyze(tmp_path)
    assert (verdict.status, verdict.culprits) == (Status.HUNG, [4])
    assert (verdict.inputs.world, verdict.inputs.set_aside) == (None, [])


def test_many_ranks_are_parted_where_they_are_loaded(tmp_path: Path) -> None:
    layout = LAYOUTS["folders"]
    write(tmp_path, layout, "attempt_0", healthy(40, 50), began_s=0)
    write(tmp_path, layout, "attempt_1", hung(40, 33, steps=20), began_s=20)
    verdict = analyze(tmp_path)
    assert (verdict.status, verdict.culprits) == (Status.HUNG, [33])
    assert len(verdict.inputs.set_aside) == 40


def test_a_job_that_was_dumped_after_another_began_is_no_earlier_attempt_of_it(
    tmp_path: Path,
) -> None:
    """It hung, a second job of the same program began beside it and ended well."""
    layout = LAYOUTS["prefixes"]
    write(tmp_path, layout, "actor", hung(4, 2), began_s=0)
    write(tmp_path, layout, "rollout", healthy(4, 80), began_s=100)
    for path in tmp_path.iterdir():
        written_s = START_NS / SECOND_NS + (600 if "actor" in path.name else 101)
        os.utime(path, (written_s, written_s))
    verdict = analyze(tmp_path)
    assert (verdict.status, verdict.culprits) == (Status.HUNG, [2])
    assert files_of("rollout", (one.file for one in verdict.inputs.set_aside))


@pytest.mark.parametrize("ended", [3, 5])
@layouts
def test_of_dumps_of_what_is_open_the_later_one_is_judged(
    tmp_path: Path, layout: Layout, ended: int
) -> None:
    """All had come to number 3 at first; a minute later it, and maybe more, has ended."""
    moments = {"early": (0, {"0": (3, 2)}), "late": (60, {"0": (ended, ended)})}
    for job, (later_s, counts) in moments.items():
        for rank in range(4):
            size = ((8 if rank == 1 else 4,),)
            open_ = [Row("all_reduce", 3, done=False, inputs=size)] if job == "early" else []
            dump = dump_object(
                open_,
                members={"0": range(4)},
                status={0: counts["0"]},
                first_record=2,
            )
            for entry in dump.get("entries", ()):
                entry["time_created_ns"] = START_NS
            path = tmp_path / layout(job, rank)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(torch_pickle(dump))
            os.utime(path, ns=(START_NS + (10 + later_s) * SECOND_NS,) * 2)
    verdict = analyze(tmp_path)
    assert (verdict.status, verdict.findings) == (Status.INCONCLUSIVE, [])
    assert {"is later" in one.reason for one in verdict.inputs.unusable} == {True}
