"""A Case in which a rank left nothing to compare it by is not called healthy."""

from __future__ import annotations

from pathlib import Path

import pytest

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.verdict import Status
from hanglab.harness.corpus.entries import entry_names, read_entry, unpack_entry

CORPUS = Path(__file__).parents[2] / "corpus"


def slow_jobs() -> list[tuple[str, int, set[int]]]:
    """Recorded jobs that a rank slows down, that rank, and all ranks with a fault of their own."""
    names = [name for name in entry_names(CORPUS) if name.startswith(("local/", "torchrun/"))]
    found: list[tuple[str, int, set[int]]] = []
    for name in names:
        truth = (read_entry(CORPUS, name).truth or [None])[0]
        if truth is not None and truth.status == "slow" and len(truth.culprits) == 1:
            verdict = read_entry(CORPUS, name).verdict or {}
            named = {rank for finding in verdict["findings"] for rank in finding["culprits"]}
            found.append((name, truth.culprits[0], named))
    return found


def without_progress(folder: Path, name: str, rank: int) -> Path:
    unpack_entry(CORPUS, name, folder / "case")
    removed = list((folder / "case").glob(f"hosts/*/ranks/{rank}.*/**/progress.bin"))
    assert removed, name
    for path in removed:
        path.unlink()
    return folder / "case"


@pytest.mark.few(12)
@pytest.mark.parametrize(("name", "slow", "named"), slow_jobs())
def test_a_slow_rank_without_its_progress_is_not_healthy(
    tmp_path: Path, name: str, slow: int, named: set[int]
) -> None:
    verdict = analyze(without_progress(tmp_path, name, slow))
    assert verdict.status is not Status.HEALTHY
    assert set(verdict.culprits) <= named


@pytest.mark.parametrize("rank", [0, 1])
def test_what_is_missing_is_named(tmp_path: Path, rank: int) -> None:
    verdict = analyze(without_progress(tmp_path, "local/slow_compute.control", rank))
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])
    assert f"rank {rank}'s progress" in verdict.inputs.would_decide
