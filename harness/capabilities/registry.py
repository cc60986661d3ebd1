"""The capability, and the registry of those who look for it."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Capability:
    """``reason`` says what was found, ``remedy`` what would help where it is missing."""

    name: str
    available: bool
    reason: str
    remedy: str = ""


CapabilityCheck = Callable[[], Capability]
_CHECKS: dict[str, CapabilityCheck] = {}


def checks(name: str) -> Callable[[CapabilityCheck], CapabilityCheck]:
    """Registers a function that looks whether the machine has ``name``."""

    def register(found: CapabilityCheck) -> CapabilityCheck:
        _CHECKS[name] = found
        return found

    return register


def names() -> tuple[str, ...]:
    """All capabilities that a scenario may need."""
    return tuple(_CHECKS)


@functools.cache
def capability(name: str) -> Capability:
    """Looks, once per process.  Raises KeyError for an unknown name."""
    return _CHECKS[name]()


def all_capabilities() -> list[Capability]:
    return [capability(name) for name in _CHECKS]


def tried(name: str, program: str, said: str, remedy: str) -> Capability:
    """True if a program works in a process of its own, whose mounts end with it."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            ran = subprocess.run(
                [sys.executable, "-c", program],
                check=False,
                capture_output=True,
                text=True,
                timeout=30,
                env={**os.environ, "TMPDIR": folder},
            )
    except (OSError, subprocess.TimeoutExpired) as failure:
        return Capability(name, False, str(failure), remedy)
    if ran.returncode:
        lines = ran.stderr.strip().splitlines()
        return Capability(name, False, lines[-1] if lines else f"code {ran.returncode}", remedy)
    return Capability(name, True, said)
