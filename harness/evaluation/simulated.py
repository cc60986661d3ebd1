"""Simulated jobs as Cases: dumps of a known fault, written where they are judged.

Half are jobs in the layouts of ``hanglab simulate``, with whole rings of NCCL; half are trials
(:mod:`hanglab.harness.trials`), whose generator and player share nothing with the analyzer: jobs
on gloo and NCCL with dumps lost, rings wrapped and other jobs beside them, of which many cannot
be decided.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, islice
from pathlib import Path
from random import Random

from hanglab.analyzer.program.job_dumps import KINDS, JobOptions, NoPlace, SimulatedJob, write_dump
from hanglab.analyzer.program.layouts import LAYOUTS, LayoutError
from hanglab.harness.corpus.entries import Truth
from hanglab.harness.evaluation.cases import LabelledCase
from hanglab.harness.trials.drawing import make_trial
from hanglab.harness.trials.folders import write_folder
from hanglab.harness.trials.truth import Trial

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
#: The cause under which the fault of a trial is counted, of those that fit it.
_OF_TRIALS = {
    "host_stop": "missing_rank",
    "device_stop": "fabric_stalled",
    "skip": "skipped_collective",
    "extra": "collective_mismatch",
    "size": "size_mismatch",
    "dtype": "dtype_mismatch",
    "kind": "collective_mismatch",
    "root": "root_mismatch",
    "splits": "split_mismatch",
    "peer": "p2p_unmatched",
    "order": "group_order",
    "wrong_group": "collective_mismatch",
    "drift": "group_creation",
}
#: Operations of each rank, enough to make a history and few enough to be judged in a moment.
_OPERATIONS = 200
#: By how much dumps would be younger without a watchdog's timeout.
_BEFORE_TIMEOUT_NS = 609_000_000_000


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
    """A trial: a program with one fault or two, or none."""

    seed: int

    def place(self, folder: Path) -> Path:
        trial = make_trial(self.seed)
        assert trial is not None, f"seed {self.seed} makes no trial"
        folder.mkdir()
        write_folder(trial, folder)
        return folder


def simulated_cases(number: int, first_seed: int = 0) -> list[LabelledCase]:
    """Simulate so many Cases, the same ones every time."""
    return list(islice(_cases(first_seed), number))


def _cases(first_seed: int) -> Iterator[LabelledCase]:
    for seed in count(first_seed):
        if seed % 2:
            trial = make_trial(seed)
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


def _truths_of_job(job: SimulatedJob) -> list[Truth]:
    told = job.truth
    if not told.culprits:
        return [Truth("healthy")]
    return [Truth("hung", CAUSES[told.fault], told.culprits)]


def truths_of_trial(trial: Trial) -> list[Truth]:
    """Findings that a verdict on a trial may lead with, the commonest cause of its fault first."""
    if not trial.faults:
        return [Truth("healthy")]
    statuses = ("corrupt",) if trial.corrupt else ("hung", "corrupt")
    first = _OF_TRIALS[trial.faults[0].kind]
    # One finding is about one fault, or about all that have a cause.
    groups = [frozenset({fault.rank}) for fault in trial.faults] + [trial.culprits]
    found = [
        Truth(status, cause, sorted(culprits))
        for culprits in dict.fromkeys(groups + [group | trial.partners for group in groups])
        for status in statuses
        for cause in sorted(trial.causes, key=lambda cause: (cause != first, cause))
    ]
    return [*found, Truth("healthy")] if trial.healthy_too else found
