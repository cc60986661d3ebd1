"""What the tests of the pytest plugin share: suites on disk, and pytest run over them."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HEADER = """
import time
import torch
import torch.distributed as dist
from hanglab.harness import Cause, Expect, Kill, scenario
"""
SOUND = """
@scenario(world_size=2, expect=Expect(Cause.SKIPPED_COLLECTIVE, culprits={{1}}))
def {name}(job):
    for step in job.steps(6):
        if not (job.faulty and job.rank == 1 and step == 3):  # FAULT
            dist.all_reduce(torch.ones(4))
        dist.broadcast(torch.zeros(2), src=0)  # SEEN
"""
NEEDS = """
@scenario(world_size=2, {given}, expect=Expect(Cause.MISSING_RANK, culprits={{1}}))
def {name}(job):
    dist.all_reduce(torch.ones(4))  # FAULT
"""


@dataclass(frozen=True)
class Ran:
    code: int
    out: str

    def items(self) -> list[str]:
        """Names of the collected items, of a run with ``--collect-only -q``."""
        return [line for line in self.out.splitlines() if "::" in line]


def write(folder: Path, name: str, *bodies: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEADER + "\n".join(bodies))
    return path


def command(*arguments: object) -> list[str]:
    # Plugins of others cost time, and have nothing to do with it.
    own = ["-p", "no:hypothesispytest", "-p", "no:anyio"]
    return [sys.executable, "-m", "pytest", *own, *map(str, arguments)]


def environment(folder: Path, changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """Leases and outer pytest of its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "GITHUB_"))}
    return {**kept, "XDG_CACHE_HOME": str(folder / ".leases"), **(changes or {})}


def run_pytest(folder: Path, *arguments: object, changes: Mapping[str, str] | None = None) -> Ran:
    done = subprocess.run(
        command(*arguments),
        cwd=folder,
        env=environment(folder, changes),
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    return Ran(done.returncode, done.stdout + done.stderr)


@contextmanager
def pytest_over(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """pytest in a process group of its own, as a shell starts it."""
    (folder / "pids").mkdir(exist_ok=True)
    process = subprocess.Popen(
        command(*arguments),
        cwd=folder,
        env=environment(folder, {"PIDS": str(folder / "pids")}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def junit_properties(path: Path) -> dict[str, dict[str, str]]:
    """Properties of each test case by its name."""
    found = {}
    for case in ElementTree.parse(path).iter("testcase"):
        inside = [(one.get("name", ""), one.get("value", "")) for one in case.iter("property")]
        assert len(inside) == len(dict(inside)), f"twice the same property: {inside}"
        found[case.get("name", "")] = dict(inside)
    return found
