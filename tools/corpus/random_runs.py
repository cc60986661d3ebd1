"""Entries out of random runs: dumps of simulated jobs, rendered as torch writes them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random

from hanglab.analyzer.program.oracle import p2p_ring
from hanglab.analyzer.program.random_runs import RandomRun, random_run
from hanglab.analyzer.program.rendering import render, to_json, to_pickle
from hanglab.harness.corpus.entries import CorpusEntry, Truth, add_entry
from hanglab.harness.evaluation.simulated import CAUSES

LARGEST = 24
#: When all files of a run were written, in seconds: after the operations in them.
_WRITTEN_S = 1_700_001_000


def add_random_runs(corpus: Path, seeds: Iterable[int]) -> list[str]:
    """Add a run for each seed that makes one; returns their names."""
    added = []
    for seed in seeds:
        drawn = random_run(Random(seed), largest=LARGEST)
        if drawn is None:
            continue
        kind = drawn.fault.kind if drawn.fault is not None else "healthy"
        name = f"rendered/{kind}-{seed}"
        with tempfile.TemporaryDirectory(prefix="hanglab-corpus-") as folder:
            write_run(drawn, Path(folder), in_json=seed % 10 == 0)
            add_entry(corpus, name, Path(folder), _entry(drawn, seed))
        added.append(name)
    return added


def _entry(drawn: RandomRun, seed: int) -> CorpusEntry:
    lost = f", without the dumps of ranks {sorted(drawn.missing)}" if drawn.missing else ""
    return CorpusEntry(
        source=f"dumps of hanglab's random run {seed} with up to {LARGEST} ranks{lost}",
        licence="Apache-2.0",
        truth=truths_of_run(drawn),
    )


def truths_of_run(drawn: RandomRun) -> list[Truth]:
    """Findings that a verdict on a run may lead with."""
    if drawn.fault is None:
        return [Truth("healthy")]
    truths = [Truth("hung", CAUSES[drawn.fault.kind], sorted(drawn.fault.culprits))]
    ring = p2p_ring(drawn.run)
    if ring:
        # Whatever led to it, a ring of sends and receives is what can be seen.
        truths.append(Truth("hung", "p2p_deadlock", sorted(ring)))
    return truths


def write_run(drawn: RandomRun, folder: Path, *, in_json: bool) -> None:
    """Write the dumps that the run has left, in the form of torch's files."""
    # What the recorder's boundary adds stands in a Case, never in torch's own dumps.
    style = replace(drawn.style, boundary=False)
    for rank in range(drawn.run.program.world_size):
        if rank in drawn.missing:
            continue
        dump = render(drawn.run, rank, replace(style, ring=drawn.rings[rank]))
        path = folder / f"rank_{rank}{'.json' if in_json else ''}"
        path.write_bytes(to_json(dump) if in_json else to_pickle(dump))
        os.utime(path, (_WRITTEN_S, _WRITTEN_S))
