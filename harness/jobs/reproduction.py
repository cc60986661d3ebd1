"""The command that runs a job once more, with the same seed."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from hanglab.harness.jobs.plan import DEFAULT_DEADLINE_S
from hanglab.harness.launchers.selection import DEFAULT_LAUNCHER

if TYPE_CHECKING:
    from hanglab.harness.jobs.run import RunRequest


def command(request: RunRequest, launcher: str | None = None) -> str:
    """``hanglab run ...`` for the scenario of ``request``, to be pasted into a shell."""
    scenario = request.scenario
    # The file alone would run all that it declares.
    what = (
        str(scenario.source) if scenario.expect is None else f"{scenario.source}::{scenario.name}"
    )
    words = ["hanglab", "run", what, "--seed", str(request.seed)]
    words += ["--backend", request.backend, "--world-size", str(request.world_size)]
    launcher = launcher or request.launcher
    if launcher != DEFAULT_LAUNCHER:
        words += ["--launcher", launcher]
    if request.nodes is not None:
        words += ["--nodes", str(request.nodes)]
    if request.hang_after_s != scenario.hang_after_s:
        words += ["--hang-after", f"{request.hang_after_s:g}"]
    if request.deadline_s != DEFAULT_DEADLINE_S:
        words += ["--deadline", f"{request.deadline_s:g}"]
    return shlex.join(words)
