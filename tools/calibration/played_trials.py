"""Findings on played trials (``harness/trials``): programs, faults and losses of a generator that
shares no code with the analyzer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from hanglab.analyzer.verdict import Status, Verdict
from hanglab.harness.trials.drawing import make_trial
from hanglab.harness.trials.folders import write_folder
from hanglab.harness.trials.truth import Trial
from tools.calibration.labelled_findings import LabelledFinding, labelled, uncalibrated


def observe_trials(seeds: Iterable[int], jobs: int) -> Iterator[LabelledFinding]:
    """An observation of each seed that makes a trial with a verdict that is not inconclusive."""
    with ProcessPoolExecutor(jobs) as pool:
        for found in pool.map(_observe, seeds, chunksize=25):
            if found is not None:
                yield found


def _observe(seed: int) -> LabelledFinding | None:
    trial = make_trial(seed)
    if trial is None:
        return None
    with TemporaryDirectory(prefix="hanglab-trial-") as folder:
        write_folder(trial, Path(folder))
        verdict = uncalibrated(Path(folder))
    if verdict.status is Status.INCONCLUSIVE:
        return None
    return labelled(verdict, right_on_trial(verdict, trial))


def right_on_trial(verdict: Verdict, trial: Trial) -> float:
    """Share of the culprits named that are culprits, by a cause that the fault may be called.

    Whoever explains the dumps as well counts as named: to have left them out was luck.
    """
    if verdict.status is Status.HEALTHY:
        return float(trial.healthy_too)
    if not trial.faults or (verdict.status is Status.CORRUPT) < trial.corrupt:
        return 0.0
    if not verdict.culprits or verdict.cause is None or verdict.cause.value not in trial.causes:
        return 0.0
    named = trial.culprits.intersection(verdict.culprits)
    return len(named) / len({*verdict.culprits, *(trial.rivals if named else ())})
