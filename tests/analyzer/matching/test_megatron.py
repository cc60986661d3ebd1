"""Two real hangs of a 16-rank Megatron job on NCCL: the injected ranks, or nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

import pytest

from hanglab.analyzer.causes.graph_findings import synchronization_findings
from hanglab.analyzer.engine import analyze
from hanglab.analyzer.flight_recorder import load_folder
from hanglab.analyzer.graph import build_wait_for_graph
from hanglab.analyzer.graph.dump_folder import wait_for_graph_of_folder
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.analyzer.verdict import Cause

DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "megatron-nccl"
pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"the dumps of the Megatron hangs are not there: {DATA}"
)
HANGS = ("lock_gil_2nd", "gpu_error_2nd")


def truth(hang: str) -> list[int]:
    return sorted(json.loads((DATA / "truth.json").read_text())[hang]["culprits"])


def fitting(hang: str, missing: int) -> list[list[int]]:
    """The injected ranks; without the dump of one of them, the other one alone."""
    return [truth(hang), [rank for rank in truth(hang) if rank != missing]]


def culprits(graph: WaitForGraph) -> list[int] | None:
    findings = synchronization_findings(graph)
    if not findings:
        return None
    assert {finding.cause for finding in findings} == {Cause.MISSING_RANK}
    return sorted(rank for finding in findings for rank in finding.culprits)


@pytest.mark.parametrize("hang", HANGS)
def test_the_injected_ranks_exactly(hang: str) -> None:
    graph = build_wait_for_graph(load_folder(DATA / hang).dumps)
    assert culprits(graph) == truth(hang)
    assert sorted(sink.rank for sink in graph.sinks) == truth(hang)
    assert not graph.divergences and not graph.cycles


@pytest.mark.parametrize("hang", HANGS)
def test_without_any_one_dump_never_another_rank(hang: str) -> None:
    dumps = load_folder(DATA / hang).dumps
    exact = 0
    for missing in range(16):
        left = [dump for dump in dumps if dump.rank != missing]
        Random(missing).shuffle(left)
        found = culprits(build_wait_for_graph(left, expected=range(16)))
        assert found in (None, *fitting(hang, missing)), missing
        exact += found is not None
    # The first two stages wait for the last two, where the culprits are.
    assert exact >= 8


@pytest.mark.parametrize("hang", HANGS)
def test_renamed_files_in_folders_of_hosts(hang: str, tmp_path: Path) -> None:
    for file in (DATA / hang).iterdir():
        rank = int(file.name.rpartition("_")[2])
        host = tmp_path / f"host{rank // 8}"
        host.mkdir(exist_ok=True)
        shutil.copyfile(file, host / f"trace_rank_{rank}.pkl")
    graph, unusable = wait_for_graph_of_folder(tmp_path)
    assert unusable == []
    assert culprits(graph) == truth(hang)


@pytest.mark.long
@pytest.mark.parametrize("hang", HANGS)
def test_shuffled_names_without_any_one_file(hang: str, tmp_path: Path) -> None:
    """Files carry other ranks' numbers, and one of them is gone: contents tell whose they are."""
    exact = 0
    for missing in range(16):
        numbers = list(range(16))
        Random(missing).shuffle(numbers)
        folder = tmp_path / str(missing)
        folder.mkdir()
        for rank, number in enumerate(numbers):
            if rank != missing:
                shutil.copyfile(DATA / hang / f"_dump_{rank}", folder / f"trace_rank_{number}.pkl")
        verdict = analyze(folder)
        assert verdict.culprits in ([], *fitting(hang, missing)), missing
        exact += bool(verdict.culprits)
    assert exact >= 8
