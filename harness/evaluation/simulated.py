"""Simulated jobs as Cases: dumps of a known fault, rendered where they are judged.

Half are jobs in the layouts of ``hanglab simulate``, with whole rings of NCCL; half are random
programs on gloo and NCCL with dumps lost, rings wrapped and clocks off, of which many cannot be
decided.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count, islice
from pathlib import Path
from random import Random

from hanglab.analyzer.program.job_dumps import KINDS, JobOptions, NoPlace, SimulatedJob, write_dump
from hanglab.analyzer.program.layouts import LAYOUTS, LayoutError
from hanglab.analyzer.program.oracle import p2p_ring
from hanglab.analyzer.program.rendering import render, to_json, to_pickle
from hanglab.analyzer.program.trials import Trial, random_trial
from hanglab.harness.corpus.entries import Truth
from hanglab.harness.evaluation.cases import LabelledCase

#: What a fault of a Program is called in verdicts; where a device stops, dumps alone do not say
#: why.
CAUSES = {
    "skip": "skipped_collective",
    "extra": "collective_mismatch",
    "wrong_operation": "collective_mismatch",
    "size": "size_mismatch",
    "dtype": "dtype_mismatch",
    "root": "root_mismatch",
    "stop": "missing_rank",
    "device_stop": None,
    "group_order": "group_order",
    "p2p_deadlock": "p2p_deadlock",
    "unmatched": "p2p_unmatched",
    "stray": "p2p_unmatched",
}
LARGEST = 24
#: Operations of each rank, enough to make a history and few enough to be judged in a moment.
_OPERATIONS = 200
#: By how much dumps would be younger without a watchdog's timeout.
_BEFORE_TIMEOUT_NS = 609_000_000_000
#: When all files of a trial were written, in seconds: after the operations in them.
_WRITTEN_S = 1_700_001_000


@dataclass(frozen=True)
class SimulatedLayout:
    """A job in one of the layouts of ``hanglab simulate``."""

    options: JobOptions

    def place(self, folder: Path) -> Path:
        job = _job(self.options)
        folder.mkdir()
        # A sound job is looked at while it runs, and no watchdog waits for ten minutes.
        early_ns = _BEFORE_TIMEOUT_NS if not job.truth.culprits else 0
        for rank, data in job.dumps():
            write_dump(folder, rank, data, job.written_ns(rank) - early_ns)
        return folder


@dataclass(frozen=True)
class SimulatedTrial:
    """A random program with one fault, or none."""

    seed: int

    def place(self, folder: Path) -> Path:
        trial = _trial(self.seed)
        assert trial is not None, f"seed {self.seed} makes no trial"
        folder.mkdir()
        write_trial(trial, folder, in_json=self.seed % 10 == 0)
        return folder


def simulated_cases(number: int, first_seed: int = 0) -> list[LabelledCase]:
    """Simulate so many Cases, the same ones every time."""
    return list(islice(_cases(first_seed), number))


def _cases(first_seed: int) -> Iterator[LabelledCase]:
    for seed in count(first_seed):
        if seed % 2:
            trial = _trial(seed)
            if trial is not None:
                name = f"simulated/trial-{seed}"
                yield LabelledCase(name, truths_of_trial(trial), SimulatedTrial(seed))
        else:
            options = _options(seed)
            try:
                job = _job(options)
            except (LayoutError, NoPlace):
                continue
            name = f"simulated/{options.layout}-{options.fault}-{seed}"
            yield LabelledCase(name, _truths_of_job(job), SimulatedLayout(options))


def _options(seed: int) -> JobOptions:
    random = Random(seed)
    return JobOptions(
        ranks=random.choice((8, 16, 32)),
        layout=random.choice(sorted(LAYOUTS)),
        fault=random.choice(KINDS),
        operations=_OPERATIONS,
        seed=seed,
        missing=random.choice((0, 0, 0, 1)),
        ring=random.choice((None, None, 50)),
        clock_offset_ms=random.choice((0.0, 1000.0)),
    )


@lru_cache(1)
def _job(options: JobOptions) -> SimulatedJob:
    return SimulatedJob(options)


def _trial(seed: int) -> Trial | None:
    return random_trial(Random(seed), largest=LARGEST)


def _truths_of_job(job: SimulatedJob) -> list[Truth]:
    told = job.truth
    if not told.culprits:
        return [Truth("healthy")]
    return [Truth("hung", CAUSES[told.fault], told.culprits)]


def truths_of_trial(trial: Trial) -> list[Truth]:
    """Findings that a verdict on a trial may lead with."""
    if trial.fault is None:
        return [Truth("healthy")]
    truths = [Truth("hung", CAUSES[trial.fault.kind], sorted(trial.fault.culprits))]
    ring = p2p_ring(trial.run)
    if ring:
        # Whatever led to it, a ring of sends and receives is what can be seen.
        truths.append(Truth("hung", "p2p_deadlock", sorted(ring)))
    return truths


def write_trial(trial: Trial, folder: Path, *, in_json: bool) -> None:
    """Write the dumps that the trial has left, in the form of torch's files."""
    # What the recorder's boundary adds stands in a Case, never in torch's own dumps.
    style = replace(trial.style, boundary=False)
    for rank in range(trial.run.program.world_size):
        if rank in trial.missing:
            continue
        dump = render(trial.run, rank, replace(style, ring=trial.rings[rank]))
        path = folder / f"rank_{rank}{'.json' if in_json else ''}"
        path.write_bytes(to_json(dump) if in_json else to_pickle(dump))
        os.utime(path, (_WRITTEN_S, _WRITTEN_S))
