"""Real commands under ``hanglab record``, for tests to observe."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hanglab.recorder.case.reader import CaseReader

PROGRAMS = Path(__file__).parent / "programs"
#: No wait in these tests is longer, in seconds: a crowded machine takes its time.
PATIENCE = 280.0
HANGLAB = [sys.executable, "-m", "hanglab.harness.cli"]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HANGLAB_")}
    kept.pop("RANK", None)
    return {**kept, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **more}


def program(name: str, *arguments: str) -> list[str]:
    return [sys.executable, str(PROGRAMS / name), *arguments]


def hanglab(*words: str | Path, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command of hanglab to its end."""
    return subprocess.run(
        [*HANGLAB, *map(str, words)],
        cwd=cwd,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@contextlib.contextmanager
def started(words: Sequence[str | Path], cwd: Path, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """A process in a session of its own, which is ended with all its processes."""
    process = subprocess.Popen(
        list(map(str, words)),
        cwd=cwd,
        env=environment(**more.pop("variables", {})),
        start_new_session=True,
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more},
    )
    try:
        yield process
    finally:
        for pid in [*below(process.pid), process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(PATIENCE)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def below(pid: int) -> list[int]:
    """All processes below one, the lowest first."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(name))
    found: list[int] = []
    front = [pid]
    while front:
        front = [child for parent in front for child in children.get(parent, [])]
        found = front + found
    return found


def trigger_of(case: Path) -> tuple[str, str]:
    job = CaseReader(case).job
    assert job is not None
    return (job.trigger.kind, job.trigger.detail) if job.trigger is not None else ("", "")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
