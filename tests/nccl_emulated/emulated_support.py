"""What jobs of emulated ranks give back to tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).with_name("programs")


@dataclass(frozen=True)
class Ended:
    """One rank after its job."""

    told: dict[str, Any]
    #: Negative for a signal, None where it had to be killed.
    code: int | None
    stderr: str


Run = Callable[..., list[Ended]]
