"""Versions of the code that decides how a job comes out: hanglab, torch, and the scenario."""

from __future__ import annotations

import hashlib
import os
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

from hanglab.harness.scenarios.declaration import Scenario

_CHECKOUT = Path(__file__).resolve().parents[2]
_ROOMS = ("analyzer", "harness", "recorder")
#: Seconds for git, which only reads here.
_PATIENCE_S = 20


@cache
def hanglab_version() -> str:
    """Version of the distribution; in a checkout with its commit and what differs from that.

    As in ``0.1.0+g658a3eb0.d41f0c2aa``: there the number alone stays while the code changes.
    """
    version = metadata.version("hanglab")
    if not (_CHECKOUT / ".git").exists():
        return version
    commit = _git("rev-parse", "--short=8", "HEAD")
    changes = _git("diff", "HEAD", "--", *_ROOMS)
    if not commit or changes is None:
        return version
    changed = f".d{hashlib.sha256(changes).hexdigest()[:8]}" if changes else ""
    return f"{version}+g{commit.decode().strip()}{changed}"


def _git(*words: str) -> bytes | None:
    """Standard output; None where there is no git, or it refuses."""
    try:
        return subprocess.run(
            ["git", "-C", _CHECKOUT, *words],
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=_PATIENCE_S,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None


@cache
def torch_version() -> str | None:
    """Version of the torch that is installed, which is not imported for it."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None


def scenario_digest(scenario: Scenario) -> str | None:
    """Sixteen hexadecimal digits of the scenario's files; None where one cannot be read.

    What these import is not in it.
    """
    digest = hashlib.sha256()
    files = dict.fromkeys((scenario.source, scenario.program, scenario.control_program))
    try:
        for path in files:
            if path is not None:
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    except OSError:
        return None
    return digest.hexdigest()[:16]
