"""The command that runs a job once more, with the same seed."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hanglab.harness.runner import Request


def command(request: Request, launcher: str | None = None) -> str:
    """``hanglab run ...`` for the scenario of ``request``, to be pasted into a shell."""
    words = ["hanglab", "run", str(request.scenario.source), "--seed", str(request.seed)]
    words += ["--backend", request.backend, "--world-size", str(request.world_size)]
    launcher = launcher or request.launcher
    if launcher != "local":
        words += ["--launcher", launcher]
    if request.nodes is not None:
        words += ["--nodes", str(request.nodes)]
    return shlex.join(words)
