"""Entries out of random trials: dumps of simulated jobs, rendered as torch writes them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from random import Random

from hanglab.analyzer.program.trials import Trial, random_trial
from hanglab.harness.corpus.entries import CorpusEntry, add_entry
from hanglab.harness.evaluation.simulated import LARGEST, truths_of_trial, write_trial


def add_trials(corpus: Path, seeds: Iterable[int]) -> list[str]:
    """Add a trial for each seed that makes one; returns their names."""
    added = []
    for seed in seeds:
        trial = random_trial(Random(seed), largest=LARGEST)
        if trial is None:
            continue
        kind = trial.fault.kind if trial.fault is not None else "healthy"
        name = f"rendered/{kind}-{seed}"
        with tempfile.TemporaryDirectory(prefix="hanglab-corpus-") as folder:
            write_trial(trial, Path(folder), in_json=seed % 10 == 0)
            add_entry(corpus, name, Path(folder), _entry(trial, seed))
        added.append(name)
    return added


def _entry(trial: Trial, seed: int) -> CorpusEntry:
    lost = f", without the dumps of ranks {sorted(trial.missing)}" if trial.missing else ""
    return CorpusEntry(
        source=f"dumps of hanglab's random trial {seed} with up to {LARGEST} ranks{lost}",
        licence="Apache-2.0",
        truth=truths_of_trial(trial),
    )
