"""Emulated jobs for tests: ranks are forked off one warm process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from emulated_support import PROGRAMS, Ended, Run


@pytest.fixture(scope="session")
def run_ranks() -> Iterator[Run]:
    """``run_ranks("module.py", "function", size, limit_s=..., VARIABLE=...)``."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "forked_ranks.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def run(
        module: str, function: str, size: int, limit_s: float = 30.0, **environment: str
    ) -> list[Ended]:
        assert process.stdin is not None and process.stdout is not None
        order = {
            "module": str(PROGRAMS / module),
            "function": function,
            "size": size,
            "limit_s": limit_s,
            "environment": environment,
        }
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        return [Ended(**answer) for answer in json.loads(process.stdout.readline())]

    try:
        yield run
    finally:
        process.stdin.close()  # type: ignore[union-attr]
        process.wait(30)
