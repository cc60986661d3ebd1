"""The command that runs a job once more, with the same seed."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hanglab.harness.runner import Request


def command(request: Request, launcher: str = "local") -> str:
    """``hanglab run ...`` for the scenario of ``request``, to be pasted into a shell."""
    words = ["hanglab", "run", str(request.scenario.source), "--seed", str(request.seed)]
    words += ["--backend", request.backend, "--world-size", str(request.world_size)]
    if launcher != "local":
        words += ["--launcher", launcher]
    return shlex.join(words)
