"""Folders of dumps that tests of commands read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hanglab.analyzer.program import Action, Program, ProgramGroup
from hanglab.analyzer.program.job_dumps import JobOptions, SimulatedJob, write_dump
from hanglab.analyzer.program.rendering import START_NS, render, to_pickle
from hanglab.analyzer.program.simulation import simulate

#: The watchdogs' dumps follow their timeout.
_WRITTEN_NS = START_NS + 10**12


def dumps(folder: Path, options: JobOptions) -> Path:
    folder.mkdir()
    job = SimulatedJob(options)
    for rank, data in job.dumps():
        write_dump(folder, rank, data, job.written_ns(rank))
    return folder


def ends_on_gloo(folder: Path) -> Path:
    """Dumps of three NCCL ranks of which one takes another dtype, of as many bytes.

    gloo compares sizes, so there the job ends, with wrong numbers.
    """
    folder.mkdir()
    call = Action("all_reduce", 0, site=10)
    wrong = replace(call, dtype="Int")
    groups = (ProgramGroup("0", (0, 1, 2), "default_pg"),)
    run = simulate(Program(groups, ((call,) * 3, (call, call, wrong), (call,) * 3)), "nccl")
    for rank in range(3):
        write_dump(folder, rank, to_pickle(render(run, rank)), _WRITTEN_NS)
    return folder
