"""Entries out of runs of scenarios: ``runs/<time>/<scenario>/<variant>/<k>/``."""

from __future__ import annotations

import json
from pathlib import Path

from hanglab.harness.corpus.entries import CorpusEntry, add_entry
from hanglab.harness.evaluation.cases import REPRODUCED, truths_of
from hanglab.recorder.case.backends import backend_of


def add_runs(corpus: Path, runs: Path) -> list[str]:
    """Add the Case of each job below ``runs`` that showed its fault; returns their names."""
    added = []
    for path in sorted(runs.glob("*/*/*/truth.json")):
        run = json.loads(path.read_bytes())
        case = path.parent / "case"
        if run["outcome"] not in REPRODUCED or not case.is_dir():
            continue
        again = f".{run['repetition']}" if run["repetition"] else ""
        # The launcher matters less than that no GPU was there.
        origin = run["backend"] if backend_of(run["backend"]).emulated else run["launcher"]
        name = f"{origin}/{run['scenario']}.{run['variant']}{again}"
        source = (
            f"the {run['variant']} of hanglab's scenario {run['scenario']}: {run['launcher']} "
            f"launcher, {run['backend']}, {run['world_size']} ranks, seed {run['seed']}"
        )
        truth = truths_of(run["expected"])
        add_entry(corpus, name, case, CorpusEntry(source=source, licence="Apache-2.0", truth=truth))
        added.append(name)
    return added
