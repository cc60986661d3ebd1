"""The straggler callbacks with the real trainers: two ranks, one of them slow in the second fit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from frameworks_support import PATIENCE, PROGRAMS, needs

SECTIONS = {
    "loop": "forward",
    "lightning": "Regression.training_step",
    "transformers": "Model.forward",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "framework",
    [
        "loop",
        pytest.param("lightning", marks=[needs("lightning"), pytest.mark.long]),
        pytest.param("transformers", marks=[needs("transformers", "accelerate"), pytest.mark.long]),
    ],
)
def test_a_slow_rank_is_found_and_the_training_stopped(framework: str, tmp_path: Path) -> None:
    script = str(PROGRAMS / f"straggler_{framework}_program.py")
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "TMPDIR": str(tmp_path),
        "LOGS": str(tmp_path / "logs"),
        # A rank was seen once to abort at its end: its threads will tell of themselves.
        "PYTHONFAULTHANDLER": "1",
    }
    job = subprocess.run(
        [sys.executable, *launcher, script],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert job.returncode == 0, job.stdout
    told = told_by(job.stdout)
    # What else runs on the machine may slow a rank down several times over, but not sixteen times.
    sound, slow = told["sound"], told["slow"]
    expected = {"fit": "sound", "rank": 0, "steps": 240, "reported": True, "slow": []}
    assert sound[0] == expected, job.stdout
    assert sound[1]["steps"] == 240
    # Both stopped, together, long before the 400 steps were over, and rank 0 knows why.
    assert slow[0]["slow"] == [1], job.stdout
    assert slow[0]["steps"] == slow[1]["steps"] < 200, job.stdout
    assert f"is slow: section {SECTIONS[framework]}, score 0." in job.stdout
    assert "Rank 0 (" not in job.stdout
    if framework == "lightning":
        metrics = (tmp_path / "logs" / "slow" / "version_0" / "metrics.csv").read_text()
        assert "section_relative_perf/Regression.training_step/min" in metrics


@needs("lightning")
@pytest.mark.long
def test_both_names_of_the_number_of_scores_say_the_same() -> None:
    from hanglab.recorder.straggler.lightning import StragglerDetectionCallback

    # The usage guide of NVIDIA's extension has had either.
    newer = StragglerDetectionCallback(60, True, False, num_gpu_perf_scores_to_log=3)
    older = StragglerDetectionCallback(60, True, False, num_gpu_perf_scores_to_print=3)
    other = StragglerDetectionCallback(60, True, False, num_gpu_perf_scores_to_log=4)
    assert vars(newer.watch) == vars(older.watch) != vars(other.watch)


def told_by(output: str) -> dict[str, dict[int, dict[str, Any]]]:
    """What the program's ranks told, by fit and rank."""
    told: dict[str, dict[int, dict[str, Any]]] = {}
    for line in output.splitlines():
        if line.startswith("TOLD "):
            one = json.loads(line.removeprefix("TOLD "))
            told.setdefault(one["fit"], {})[one["rank"]] = one
    return told
