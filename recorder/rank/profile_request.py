"""Asking for a trace from inside the job: a note that the agent beside it picks up."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path

from hanglab.recorder.case.folders import write_whole

#: Names of the notes in the job's runtime folder.
PATTERN = "profile-*.json"
_numbers = itertools.count()


def leave_request(
    runtime: str, duration_ms: int, iterations: int, ranks: Sequence[int] | None, stacks: bool
) -> bool:
    """Write the note; False where that fails.  Never raises, never waits."""
    try:
        asked = {
            "selection": {"ranks": [int(rank) for rank in ranks or ()]},
            "window": {"duration_ms": int(duration_ms), "iterations": int(iterations)},
            "detail": {"stacks": bool(stacks)},
        }
        path = Path(runtime) / f"profile-{os.getpid()}-{next(_numbers)}.json"
        write_whole(path, json.dumps(asked).encode())
    except (OSError, TypeError, ValueError):
        return False
    return True
