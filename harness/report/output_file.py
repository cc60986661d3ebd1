"""Files that commands write for people: never over one that is there, unless they say so."""

from __future__ import annotations

from pathlib import Path

from hanglab.harness.errors import HanglabError


class FileExists(HanglabError):
    """There is a file already where a new one is to go."""

    advice = "Give another name with -o, or --force to replace it."
    exit_code = 64


def check_target(target: Path, *, force: bool) -> None:
    """Raises FileExists where there is a file and ``force`` is not given."""
    if target.exists() and not force:
        raise FileExists(f"{target} exists.")
