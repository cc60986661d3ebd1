"""Verdicts on emulated jobs whose hosts ran ahead: each depends on what NCCL alone leaves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from installed import needs_torch

#: Scenario -> status, cause and the words of the line that must be named.
EXPECTED = {
    # The line that launched the operation, though the host stands in a comparison behind it.
    "collective_mismatch": ("hung", "collective_mismatch", "all_gather_into_tensor"),
    # Roots are of the boundary alone, and everybody goes on.
    "root_mismatch": ("corrupt", "root_mismatch", "dist.broadcast"),
    "split_mismatch": ("hung", "split_mismatch", "all_to_all_single(arrived"),
    # Peers wait in the first operation of a group that rank 1 never made.
    "group_creation": ("hung", "group_creation", "dist.all_reduce(model.weight.grad)"),
    # A host is held in a launch, as its operation needs another communicator.
    "device_guessed": ("hung", "missing_rank", "dist.barrier"),
    "p2p_unmatched": ("hung", "p2p_unmatched", "dist.all_reduce(loss)"),
    "launch_queue_full": ("hung", "missing_rank", "self.connection.recv"),
    # Members of a batch have no states; its end is open, and every later one behind it.
    "halo_wrong_neighbour": ("hung", "p2p_unmatched", "dist.batch_isend_irecv"),
}
#: Rank 1 where nothing is said.
CULPRITS = {"halo_wrong_neighbour": [2]}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "hanglab.harness.cli", "run", *EXPECTED),
            *("--no-control", "--backend", "nccl-emulated", "--jobs", "2", "--json"),
        ],
        cwd=tmp_path_factory.mktemp("runs"),
        capture_output=True,
        text=True,
        timeout=280,
    )
    return {one["scenario"]: one for one in json.loads(ran.stdout)["results"]}


@pytest.mark.long
@needs_torch
@pytest.mark.parametrize("scenario", EXPECTED)
def test_what_runs_ahead_is_judged_by_what_was_launched(
    results: dict[str, dict[str, Any]], scenario: str
) -> None:
    verdict = results[scenario]["verdict"]
    status, cause, words = EXPECTED[scenario]
    assert (verdict["status"], verdict["cause"]) == (status, cause)
    assert verdict["culprits"] == CULPRITS.get(scenario, [1])
    told = [(one["rank"], one["detail"]) for one in verdict["evidence"]]
    assert len(told) == len(set(told))
    place = verdict["location"]
    assert words in Path(place["file"]).read_text().splitlines()[place["line"] - 1]
