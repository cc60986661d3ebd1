"""Hangs shrunk by simulation alone, and mended: cause and culprits stay, and go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from random_programs import random_program

from hanglab.analyzer.hang_similarity import KeptVerdict, SimilarityTest, cut_ranks, recognise
from hanglab.analyzer.program import Action, Program, ProgramGroup
from hanglab.analyzer.program.faults import make_fault
from hanglab.analyzer.program.job_dumps import JobOptions, SimulatedJob, write_dump
from hanglab.analyzer.program.minimisation import PHASES
from hanglab.analyzer.program.reduced_program import operations_of, whole
from hanglab.analyzer.program.sound_program import without_fault
from hanglab.analyzer.replayable import NotReplayable, read_replayable
from hanglab.analyzer.simulated_verdict import simulated
from hanglab.analyzer.verdict import Cause, Status, Verdict

#: Seeds of programs with each kind of fault that hangs on gloo.
FAULTY = (
    ("skip", 1),
    ("extra", 2),
    ("wrong_operation", 3),
    ("size", 4),
    ("dtype", 5),
    ("root", 11),
    ("stop", 7),
    ("group_order", 12),
    ("p2p_deadlock", 9),
    ("unmatched", 20),
)


def faulty_program(kind: str, seed: int) -> Program:
    """A program that hangs by a fault of that kind, the first from a seed on."""
    for number in range(seed, seed + 50):
        random = Random(number)
        program = random_program(random, world=6, length=5, repeats=4)
        fault = make_fault(program, kind, random.randrange(6), random)
        if fault is None:
            continue
        cut = fault.program
        for rank, at in fault.stops.items():
            cut = cut.with_actions(rank, cut.actions[rank][:at])
        actions = tuple(tuple(replace(a, batch=0) for a in mine) for mine in cut.actions)
        cut = replace(cut, actions=actions)
        simulation = simulated(cut)
        if simulation.run.stuck and simulation.verdict.culprits:
            return cut
    raise AssertionError(f"no program with the fault {kind}")


def ends_well(program: Program) -> bool:
    simulation = simulated(program)
    return not simulation.run.stuck and simulation.verdict.cause is None


@pytest.mark.parametrize(("kind", "seed"), FAULTY)
def test_a_shrunk_program_hangs_for_the_same_reason_and_can_be_mended(kind: str, seed: int) -> None:
    program = faulty_program(kind, seed)
    verdict = simulated(program).verdict
    assert verdict.cause is not None
    similarity = SimilarityTest(KeptVerdict(verdict.cause, frozenset(verdict.culprits)), cause=True)
    reduced = whole(program)
    for _, phase in PHASES:
        smaller = phase(reduced, similarity.holds, similarity.kept_verdict.culprits)
        assert smaller == reduced or similarity.holds(smaller)
        assert smaller.calls <= reduced.calls
        reduced = smaller
    assert len(reduced.ranks) <= 4 and len(operations_of(reduced.program)) <= 15
    assert set(verdict.culprits) <= set(reduced.ranks) or len(verdict.culprits) > 3
    blamed = [place for place, rank in enumerate(reduced.ranks) if rank in verdict.culprits]
    sound = without_fault(reduced.program, blamed, ends_well)
    assert sound is not None and ends_well(sound)


def test_culprits_are_compared_by_their_numbers_in_the_whole_job() -> None:
    kept_verdict = KeptVerdict(Cause.MISSING_RANK, frozenset({5, 9}))
    verdict = Verdict(status=Status.HUNG, cause=Cause.MISSING_RANK, culprits=[0, 2])
    assert kept_verdict.fits(verdict, (5, 7, 9))
    assert not kept_verdict.fits(verdict, (5, 9, 7))
    # Another cause names the same ranks; one of two culprits is not enough.
    other = Verdict(status=Status.HUNG, cause=Cause.SKIPPED_COLLECTIVE, culprits=[0, 2])
    assert kept_verdict.names(other, (5, 7, 9)) and not kept_verdict.fits(other, (5, 7, 9))
    assert not kept_verdict.are_left((5, 7))
    # Of very many, two stand for all.
    ring = KeptVerdict(Cause.P2P_DEADLOCK, frozenset(range(64)))
    assert ring.fits(Verdict(status=Status.HUNG, cause=ring.cause, culprits=[0, 1]), (3, 4))


def dumps(folder: Path, options: JobOptions) -> Path:
    folder.mkdir()
    job = SimulatedJob(options)
    for rank, data in job.dumps():
        write_dump(folder, rank, data, job.written_ns(rank))
    return folder


def test_a_job_is_cut_to_ranks_that_hang_for_the_same_reason(tmp_path: Path) -> None:
    path = dumps(tmp_path / "dumps", JobOptions(8, "3d", "size", operations=20))
    job = read_replayable(path)
    (culprit,) = job.verdict.culprits
    for size in (4, 6):
        cut, ranks = cut_ranks(job, size)
        assert len(ranks) == len(cut.calls) == size and culprit in ranks
        cut = replace(cut, verdict=_renumbered(job.verdict, ranks))
        similarity, _ = recognise(cut)
        assert similarity.cause
    with pytest.raises(NotReplayable, match="no 2 ranks of this job"):
        cut_ranks(read_replayable(dumps(tmp_path / "order", _TIED)), 2)


#: A size that differs between two ranks alone blames both of them.
_TIED = JobOptions(8, "world", "size", operations=20)


def test_a_device_that_is_held_up_is_a_host_that_waits(tmp_path: Path) -> None:
    """NCCL's hosts enqueue both collectives, in opposite orders; on gloo both would go through."""
    job = read_replayable(
        dumps(tmp_path / "dumps", JobOptions(16, "moe", "group_order", operations=30, seed=9))
    )
    assert job.verdict.cause is Cause.GROUP_ORDER
    similarity, starts = recognise(job)
    last = next(starts)
    assert similarity.verdict and last.calls < sum(map(len, job.calls))
    # What a simulation blames them for instead stays as well.
    assert similarity.instead is simulated(last.program).verdict.cause


def test_calls_of_a_device_in_order_hang_as_they_did_there(tmp_path: Path) -> None:
    """Of both collectives each rank waits in the first, as dumps of NCCL have it."""
    job = read_replayable(
        dumps(tmp_path / "dumps", JobOptions(16, "moe", "group_order", operations=30, seed=9))
    )
    similarity, starts = recognise(job, backend="nccl")
    assert similarity.cause and similarity.waits is not None
    last = next(starts)
    assert simulated(last.program, "nccl").verdict.cause is Cause.GROUP_ORDER
    assert not any(action.overlap for mine in last.program.actions for action in mine)


def test_hosts_wait_in_barriers_of_nccl() -> None:
    groups = (ProgramGroup("0", (0, 1), "default_pg"), ProgramGroup("1", (0, 1), "other"))
    barrier, reduction = Action("barrier", 0, numel=0), Action("all_reduce", 1)
    run = simulated(Program(groups, ((barrier, reduction), ())), "nccl").run
    assert [one.action.op for one in run.ranks[0].issued] == ["barrier"]
    run = simulated(Program(groups, ((reduction, barrier), ())), "nccl").run
    assert [one.action.op for one in run.ranks[0].issued] == ["all_reduce", "barrier"]


def test_what_is_like_the_job_is_given_from_the_fewest_operations_to_all(tmp_path: Path) -> None:
    job = read_replayable(dumps(tmp_path / "dumps", JobOptions(4, "world", "skip", operations=60)))
    similarity, starts = recognise(job)
    found = list(starts)
    calls = [start.calls for start in found]
    assert len(calls) > 2 and calls == sorted(set(calls))
    assert calls[-1] == sum(map(len, job.calls))
    assert all(similarity.holds(start) for start in found)


def _renumbered(verdict: Verdict, ranks: tuple[int, ...]) -> Verdict:
    culprits = [ranks.index(rank) for rank in verdict.culprits]
    return Verdict(status=verdict.status, cause=verdict.cause, culprits=culprits)


def test_calls_that_stop_nowhere_are_refused(tmp_path: Path) -> None:
    job = read_replayable(dumps(tmp_path / "dumps", JobOptions(4, "world", "skip", operations=20)))
    # As if the ring of the culprit had been damaged: its last calls are those of its peers.
    job.calls = [[replace(c, finished=True) for c in job.calls[0]] for _ in job.calls]
    with pytest.raises(NotReplayable, match="do not stop where the job did"):
        recognise(job)
