"""Entries out of random trials: dumps of simulated jobs, rendered as torch writes them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random

from hanglab.analyzer.program.oracle import p2p_ring
from hanglab.analyzer.program.rendering import render, to_json, to_pickle
from hanglab.analyzer.program.trials import Trial, random_trial
from hanglab.harness.corpus.entries import CorpusEntry, Truth, add_entry
from hanglab.harness.evaluation.simulated import CAUSES

LARGEST = 24
#: When all files of a trial were written, in seconds: after the operations in them.
_WRITTEN_S = 1_700_001_000


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
