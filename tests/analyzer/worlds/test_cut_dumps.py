"""A dump that breaks off: its rank's later calls are unknown, and a verdict says that it is cut."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from foreign_jobs import START_NS, Job, dump
from graph_rows import Row, columns, dump_object, world
from test_foreign_jobs import JOBS, Programs

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.engine import analyze
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.program.torch_pickle import torch_pickle
from hanglab.analyzer.verdict import Cause, Status

#: Steps of a training loop: operation, elements, line.
STEP = (("all_reduce", 8, 10), ("all_reduce", 4, 11), ("broadcast", 2, 12))


def rows(calls: Sequence[tuple[str, int, int]], done: int) -> list[Row]:
    return [
        Row(op, seq, inputs=((size,),), line=line, done=seq <= done)
        for seq, (op, size, line) in enumerate(calls, start=1)
    ]


def write(
    folder: Path, dumps: Mapping[int, dict[str, Any]], cut: Mapping[int, float], late_s: float = 5
) -> None:
    for rank, made in dumps.items():
        data = pickle.dumps(made, 2)
        path = folder / f"rank_{rank}"
        path.write_bytes(data[: int(len(data) * cut.get(rank, 1))])
        last_ns = max(entry["time_created_ns"] for entry in made["entries"])
        os.utime(path, ns=(last_ns + int(late_s * 1e9),) * 2)


def skipped(programs: Programs, rank: int, random: Random) -> Programs:
    whole = programs[rank]
    calls = [at for at in range(len(whole) // 2, len(whole) - 2) if whole[at] is not None]
    at = random.choice(calls)
    programs[rank] = [*whole[:at], *whole[at + 1 :]]
    return programs


def stopped(programs: Programs, rank: int, random: Random) -> Programs:
    programs[rank] = programs[rank][
        : random.randrange(len(programs[rank]) // 2, len(programs[rank]))
    ]
    return programs


Fault = Callable[[Programs, int, Random], Programs]


@pytest.mark.few(20)
@pytest.mark.parametrize("make", JOBS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("fault", [skipped, stopped])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("status_first", [True, False])
def test_a_cut_dump_never_turns_the_accusation_to_another(
    tmp_path: Path, make: Callable[[], Programs], fault: Fault, seed: int, status_first: bool
) -> None:
    random = Random(seed)
    programs = make()
    culprit = random.choice(sorted(programs))
    job = Job(fault(programs, culprit, random), random)
    job.run()
    whole = {rank: dump(job, rank) for rank in job.programs}
    if not status_first:
        whole = {r: {"entries": one["entries"], **one} for r, one in whole.items()}
    folder = tmp_path / "whole"
    folder.mkdir()
    write(folder, whole, {}, late_s=900)
    told = analyze(folder)
    for cut in (culprit, random.choice(sorted(programs))):
        folder = tmp_path / f"cut {cut}"
        folder.mkdir(exist_ok=True)
        write(folder, whole, {cut: random.uniform(0.3, 0.95)}, late_s=900)
        verdict = analyze(folder)
        assert verdict.culprits in ([], [culprit], told.culprits)
        if verdict.status is Status.INCONCLUSIVE and told.status is not Status.INCONCLUSIVE:
            whole_dump = f"a whole dump of rank {cut}"
            assert whole_dump in ", ".join(verdict.inputs.would_decide)
            assert f"the dump of rank {cut} breaks off" in verdict.summary


def test_a_number_that_a_cut_dump_counts_as_entered_is_no_call_of_its_peers() -> None:
    """Its rank left something out before that, which stood in what is lost."""
    calls = [*STEP * 4, STEP[0]]
    dumps = [columns(r, rows(calls, 12), members=world(3), status={0: (13, 12)}) for r in (0, 2)]
    cut = columns(1, rows(calls[:6], 6), members=world(3), status={0: (13, 12)})
    cut.damage = "ends too early"
    graph = build_wait_for_graph([*dumps, cut])
    assert synchronization_findings(graph) == []
    assert graph.stalled == [] and graph.lost_ends == {1}
    assert [need.one.format("rank 1") for need in graph.needs] == ["a whole dump of rank 1"]


def test_two_groups_that_a_cut_dump_counts_make_no_ring() -> None:
    """Which of both it entered first, and by what calls, is lost."""
    members = {"0": range(3), "1": range(3)}
    one = [Row("all_reduce", 1), Row("all_reduce", 1, "1")]
    one += [Row("all_reduce", 2, "1", done=False)]
    dumps = [columns(r, one, members=members, status={0: (1, 1), 1: (2, 1)}) for r in (0, 2)]
    cut = columns(1, one[:2], members=members, status={0: (2, 1), 1: (1, 1)})
    cut.damage = "ends too early"
    graph = build_wait_for_graph([*dumps, cut])
    assert (graph.cycles, synchronization_findings(graph)) == ([], [])


def test_counters_that_stand_before_the_cut_prove_who_is_missing() -> None:
    calls = [*STEP * 4, STEP[0]]
    dumps = [columns(r, rows(calls, 12), members=world(3), status={0: (13, 12)}) for r in (0, 2)]
    cut = columns(1, rows(calls[:6], 6), members=world(3), status={0: (12, 12)})
    cut.damage = "ends too early"
    (finding,) = synchronization_findings(build_wait_for_graph([*dumps, cut]))
    assert (finding.cause, finding.culprits) == (Cause.MISSING_RANK, [1])
    assert "The dump of rank 1 breaks off; that nothing is unfinished is told by" in finding.summary
    # What it called last is lost.
    assert not any("its last call" in one.detail for one in finding.evidence)


def healthy(members: int, *, status: bool) -> dict[int, dict[str, Any]]:
    made = {}
    for rank in range(members):
        one = dump_object(
            rows([*STEP * 6], 18),
            members=world(members),
            status={0: (18, 18)} if status else None,
            version="2.10" if status else "2.1",
        )
        for entry in one["entries"]:
            entry["time_created_ns"] += START_NS
        made[rank] = one
    return made


def test_a_healthy_job_with_a_cut_dump_is_called_so_by_its_counters_and_says_it(
    tmp_path: Path,
) -> None:
    write(tmp_path, healthy(4, status=True), {2: 0.6})
    verdict = analyze(tmp_path)
    assert verdict.status is Status.HEALTHY
    assert "The dump of rank 2 breaks off" in verdict.summary
    assert "rank 2 finished its last operations as all peers did" in verdict.summary


def test_a_cut_dump_without_counters_is_asked_for_whole(tmp_path: Path) -> None:
    write(tmp_path, healthy(4, status=False), {2: 0.6})
    verdict = analyze(tmp_path)
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])
    assert "the dump of rank 2 breaks off" in verdict.summary
    assert verdict.inputs.would_decide == ["a whole dump of rank 2"]


def test_two_calls_of_other_sizes_in_the_other_order_are_told_so_in_dumps_alone(
    tmp_path: Path,
) -> None:
    sizes = (4, 6, 9, 12)
    for rank in range(3):
        last = (6, 4, 9, 12) if rank == 2 else sizes
        calls = [("all_gather", size, 10) for size in (*sizes * 3, *last)]
        made = dump_object(rows(calls, 12), members=world(3))
        (tmp_path / f"rank_{rank}").write_bytes(torch_pickle(made))
    verdict = analyze(tmp_path)
    assert (verdict.cause, verdict.culprits) == (Cause.COLLECTIVE_MISMATCH, [2])
    assert "another call of its round" in verdict.summary


def test_who_is_inside_an_operation_that_nobody_finishes_is_told(tmp_path: Path) -> None:
    """The others wait for them in operations of their own."""
    members = {"0": range(4), "1": (0, 1), "2": (2, 3)}
    for rank in range(4):
        group = "1" if rank < 2 else "2"
        calls = [Row("all_reduce", 1), Row("all_reduce", 1, group, done=group == "2")]
        calls.append(Row("all_reduce", 2, done=False))
        mine = {name: ranks for name, ranks in members.items() if rank in ranks}
        made = dump_object(calls, members=mine, descriptions={"1": "a", "2": "b"})
        (tmp_path / f"rank_{rank}").write_bytes(torch_pickle(made))
    verdict = analyze(tmp_path)
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])
    assert verdict.summary.startswith("Ranks 0 and 1 are inside all_reduce (a, number 1), and ")


@pytest.mark.parametrize("behind", [[1], [0, 1, 2]])
def test_dumps_of_different_moments_ask_for_those_of_one(tmp_path: Path, behind: list[int]) -> None:
    """Nothing is open in any of them, so nobody is seen to wait."""
    for rank in range(4):
        calls = [*STEP * (4 if rank in behind else 6)]
        made = dump_object(rows(calls, len(calls)), members=world(4))
        for entry in made["entries"]:
            entry["time_created_ns"] += START_NS
        (tmp_path / f"rank_{rank}").write_bytes(torch_pickle(made))
    verdict = analyze(tmp_path)
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])
    less = "rank 1 has done less than its peers" if behind == [1] else "ranks 0-2 have done less"
    assert less in verdict.summary
    assert verdict.inputs.would_decide == ["dumps of all ranks from one moment"]
