"""Runs the programs of this folder under ``hanglab record``, as their users would."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest

PROGRAMS = Path(__file__).parent / "programs"
#: Seconds without movement that count as a hang in these jobs.
HANG_AFTER = 2.0
#: No job of these tests takes longer, in seconds.
#: No wait in these tests is longer, in seconds: a crowded machine takes its time.
PATIENCE = 280.0

Start = Literal["torchrun", "spawn"]


def needs(*packages: str) -> pytest.MarkDecorator:
    """Skips where a package is missing, and says how to get it."""
    missing = [package for package in packages if find_spec(package) is None]
    return pytest.mark.skipif(
        bool(missing),
        reason=f"{', '.join(missing)} not installed; pip install 'hanglab[frameworks]'",
    )


@dataclass
class Recorded:
    """What a recorded job left behind."""

    code: int
    verdict: dict[str, Any]
    output: str

    @property
    def line(self) -> tuple[str, int] | None:
        location = self.verdict["location"]
        return (Path(location["file"]).name, location["line"]) if location else None


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _end(job: subprocess.Popen[str]) -> None:
    """End what is left of a job that did not come to its end, hanglab itself last."""
    if job.poll() is not None:
        return
    left = psutil.Process(job.pid).children(recursive=True)
    for process in [*left, job]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    job.communicate()


def record(program: str, odd: str, start: Start, folder: Path) -> Recorded:
    """Run a program of two ranks under ``hanglab record`` to its end."""
    script = [str(PROGRAMS / f"{program}_program.py"), odd]
    launcher = [sys.executable]
    if start == "torchrun":
        launcher += ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    temporary = folder / "tmp"
    temporary.mkdir()
    verdict = folder / "verdict.json"
    options = ["--out", str(folder / "case"), "--hang-after", str(HANG_AFTER), "--json"]
    command = [
        *(sys.executable, "-m", "hanglab.harness.cli", "record", *options, str(verdict)),
        *("--", *launcher, *script),
    ]
    job = subprocess.Popen(
        command,
        cwd=folder,
        env={
            **{name: value for name, value in os.environ.items() if name != "RANK"},
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(_free_port()),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "TMPDIR": str(temporary),
            "HF_HUB_OFFLINE": "1",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output = job.communicate(timeout=PATIENCE)[0]
    finally:
        _end(job)
    assert verdict.exists(), f"no verdict, exit code {job.returncode}:\n{output}"
    return Recorded(job.returncode, json.loads(verdict.read_text()), output)


def line_seen(program: str, odd: str) -> tuple[str, int]:
    """The line that the program itself marks as the culprit's."""
    path = PROGRAMS / f"{program}_program.py"
    for number, line in enumerate(path.read_text().splitlines(), 1):
        marked = re.search(r"# SEEN (.*)", line)
        if marked and odd in re.split(r",\s*", marked[1]):
            return path.name, number
    raise AssertionError(f"{path.name} marks no line for {odd}")
