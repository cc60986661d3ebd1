"""Verdicts on jobs whose CUDA graphs were replayed more or less often by some ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from installed import needs_torch

from hanglab.analyzer.replayable import NotReplayable, read_replayable

pytestmark = needs_torch

_SCENARIO = """\
import torch
import torch.distributed as dist

from hanglab.harness import Cause, Expect, scenario


@scenario(
    world_size={size},
    backends=("nccl-emulated",),
    expect=Expect(Cause.{cause}, culprits={culprits}),
)
def replayed(job):
    value = torch.ones(8, device=job.device)
    dist.all_reduce(value)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        {captured}
    for step in job.steps(6):
        if job.faulty and job.rank == {odd} and step == 3:  # FAULT
            for _ in range({times}):
                graph.replay()
            {stays}
        else:
            graph.replay()
    dist.barrier()  # SEEN
"""
_REDUCE = "dist.all_reduce(value)"


def _verdict(folder: Path, **parts: Any) -> dict[str, Any]:
    """The verdict on the fault of a scenario made of the parts."""
    script = folder / "replayed.py"
    script.write_text(_SCENARIO.format(**parts))
    command = [str(Path(sys.executable).with_name("hanglab")), "run", str(script)]
    done = subprocess.run(
        [*command, "--backend", "nccl-emulated", "--no-control"],
        cwd=folder, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    files = list((folder / "runs").glob("*/replayed/fault/*/verdict.json"))
    assert files, done.stdout + done.stderr
    verdict: dict[str, Any] = json.loads(files[0].read_text())
    return verdict


@pytest.mark.long
@pytest.mark.parametrize(
    ("size", "odd", "times", "cause", "culprits"),
    [(3, 0, 2, "collective_mismatch", [0]), (2, 1, 0, "skipped_collective", [0, 1])],
    ids=["one_too_many", "of_two_ranks_either"],
)
def test_ranks_are_named_by_the_number_of_their_replays(
    tmp_path: Path, size: int, odd: int, times: int, cause: str, culprits: list[int]
) -> None:
    verdict = _verdict(
        tmp_path, size=size, odd=odd, times=times, cause=cause.upper(), stays="pass",
        culprits=set(culprits), captured=_REDUCE,
    )  # fmt: skip
    assert (verdict["cause"], verdict["culprits"]) == (cause, culprits), verdict["summary"]
    # Calls that no buffer has cannot be made again.
    case = tmp_path / "runs" / "latest" / "replayed" / "fault" / "0" / "case"
    with pytest.raises(NotReplayable, match="replays of CUDA graphs launched, and no buffer"):
        read_replayable(case)


@pytest.mark.slow
def test_a_rank_that_stands_before_a_replay_is_not_said_to_have_left_it_out(tmp_path: Path) -> None:
    verdict = _verdict(
        tmp_path, size=3, odd=1, times=0, cause="PYTHON_DEADLOCK", culprits={1}, captured=_REDUCE,
        stays="import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()",
    )  # fmt: skip
    assert (verdict["cause"], verdict["culprits"]) == ("python_deadlock", [1]), verdict["summary"]
