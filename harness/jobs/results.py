"""Results of a run as JSON: ``results.json`` in its folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from hanglab.harness.jobs.outcome import Outcome, exit_code
from hanglab.harness.jobs.plan import Options
from hanglab.harness.jobs.run import Result, expectation
from hanglab.harness.jobs.run_folder import RunFolder, write_json

SCHEMA: Final = "hanglab.run/1"


def write_results(
    folder: RunFolder, options: Options, results: Sequence[Result]
) -> dict[str, object]:
    """Writes the run's ``results.json`` and gives back its content.

    A run on several backends has one in the folder of each, too.
    """
    entries = [to_json(result) for result in results]
    for backend in folder.backends:
        own = [entry for entry in entries if entry["backend"] == backend]
        part = folder.of(backend)
        part.path.mkdir(exist_ok=True)
        write_entries(part, replace(options, backend=backend), own)
    return write_entries(folder, options, entries)


def write_entries(
    folder: RunFolder, options: Options, entries: Sequence[Mapping[str, object]]
) -> dict[str, object]:
    """Write results that :func:`to_json` has made."""
    content: dict[str, object] = {
        "schema": SCHEMA,
        "folder": str(folder.path),
        "exit_code": exit_code(Outcome(entry["outcome"]) for entry in entries),
        "backend": options.backend,
        "launcher": options.launcher,
        "seed": options.seed,
        "counts": _counts(entries),
        "results": entries,
    }
    write_json(folder.results, content)
    return content


def _counts(entries: Sequence[Mapping[str, object]]) -> dict[str, dict[str, int]]:
    """Number of jobs by backend and outcome."""
    found: dict[str, Counter[str]] = {}
    for entry in entries:
        if entry["backend"] is not None:
            found.setdefault(str(entry["backend"]), Counter())[str(entry["outcome"])] += 1
    return {backend: dict(counts) for backend, counts in found.items()}


def to_json(result: Result) -> dict[str, object]:
    request = result.request
    return {
        "scenario": result.name,
        "variant": request.variant if request else None,
        "backend": request.backend if request else None,
        "repetition": request.repetition if request else None,
        "seed": request.seed if request else None,
        "world_size": request.world_size if request else None,
        "outcome": result.outcome.value,
        "reason": result.judgement.reason,
        "expected": expectation(request) if request else None,
        "verdict": result.verdict,
        "seconds": round(result.seconds, 3),
        "artifacts": str(result.folder) if result.folder else None,
        "detail": result.detail,
    }
