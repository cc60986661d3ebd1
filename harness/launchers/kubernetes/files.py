"""Files between this machine and pods, which share none: the program there, its evidence back."""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path
from typing import Final

from hanglab.harness.kubernetes.names import CASES
from hanglab.harness.launchers.protocol import JobPlan, LaunchError
from hanglab.recorder.case import folders

#: Bytes of a file in one message.
PIECE: Final = 1 << 18
#: Bytes of the program with what lies beside it, and of what a pod hands over.
_LARGEST_PROGRAM = 4 << 20
_LARGEST_EVIDENCE = 4 << 30
_LOG = re.compile(r"(rank|agent|timeout_dump_rank)\d+[\w.]*")


class ProgramTooLarge(LaunchError):
    """The program cannot be sent to pods."""

    advice = "Give it a folder of its own: all Python files beside it are sent, too."


def place_of(script: Path) -> Path:
    """The program's place in a pod: its own path, below a folder that may be written."""
    return Path(CASES) / "program" / script.resolve().relative_to("/")


def program_of(script: Path) -> dict[str, str]:
    """Text of the script and of the Python files beside it, by name.  Raises LaunchError."""
    try:
        beside = sorted(path for path in script.parent.glob("*.py") if path.is_file())
        found = {path.name: path for path in (*beside, script)}
        if sum(path.stat().st_size for path in found.values()) > _LARGEST_PROGRAM:
            raise ProgramTooLarge(
                f"The Python files in {script.parent} are more than {_LARGEST_PROGRAM >> 20} MiB."
            )
        return {name: path.read_text() for name, path in found.items()}
    except (OSError, UnicodeDecodeError) as error:
        raise LaunchError(f"{script.parent} cannot be read for the pods: {error}.") from error


class EvidenceFiles:
    """Takes what pods hand over, each into its own host's folder and its own ranks' logs."""

    def __init__(self, plan: JobPlan) -> None:
        self._plan = plan
        self._taken: dict[Path, int] = {}
        self._bytes: dict[int, int] = {}

    def take(self, number: int, host: str, name: str, data: str) -> None:
        """Appends to a file.  What is none of this pod's, or too much, is left out."""
        path = self._place(host, name)
        if path is None or self._taken.setdefault(path, number) != number:
            return
        content = base64.b64decode(data)
        size = self._bytes.get(number, 0) + len(content)
        if size > _LARGEST_EVIDENCE:
            return
        self._bytes[number] = size
        folders.make_private(path.parent)
        descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        with os.fdopen(descriptor, "ab") as file:
            file.write(content)

    def _place(self, host: str, name: str) -> Path | None:
        kind, *parts = name.split("/")
        if not parts or any(part in ("", ".", "..") or "\0" in part for part in parts):
            return None
        if kind == "log":
            fits = len(parts) == 1 and _LOG.fullmatch(parts[0])
            return self._plan.log_dir / parts[0] if fits else None
        own = folders.host_folder(self._plan.case_dir, host)
        if kind == "case" and parts[0] == own.name and len(parts) > 1:
            return own.joinpath(*parts[1:])
        return None
