"""Entries out of trials: dumps of played programs, some with faults, as torch writes them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from hanglab.harness.corpus.entries import CorpusEntry, add_entry
from hanglab.harness.evaluation.simulated import truths_of_trial
from hanglab.harness.trials.drawing import make_trial
from hanglab.harness.trials.folders import write_folder


def add_trials(corpus: Path, seeds: Iterable[int]) -> list[str]:
    """Add the trial of each seed that makes one; returns their names."""
    added = []
    for seed in seeds:
        trial = make_trial(seed)
        if trial is None:
            continue
        name = f"trials/{trial.shape}-{trial.fault}-{seed}"
        entry = CorpusEntry(
            source=f"dumps of hanglab's trial {seed}, {', '.join(trial.loss.kinds) or 'whole'}",
            licence="Apache-2.0",
            truth=truths_of_trial(trial),
        )
        with tempfile.TemporaryDirectory(prefix="hanglab-corpus-") as folder:
            write_folder(trial, Path(folder))
            add_entry(corpus, name, Path(folder), entry)
        added.append(name)
    return added
