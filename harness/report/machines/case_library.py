"""Cases below one folder, read and never changed, for programs that ask for them by name."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hanglab.harness.errors import UsageError
from hanglab.recorder.case import folders
from hanglab.recorder.case.reader import CaseReader, NotACase

#: Cases that one answer lists, and bytes of evidence that it holds.
MOST_CASES = 500
MOST_BYTES = 20_000
#: Files of evidence that are text; the others are read by ``entries`` and ``analyze``.
_TEXTS = frozenset({".json", ".jsonl", ".txt", ".log"})


class CaseLibrary:
    """The Cases and folders of dumps below ``root``.

    Whoever asks names them by their path from there; what leads out of it is refused.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def cases(self) -> list[dict[str, Any]]:
        """Path, world size and time of each Case, sorted by path; at most ``MOST_CASES``."""
        return [self._described(path) for path in itertools.islice(self._found(), MOST_CASES)]

    def folder(self, path: str) -> Path:
        """The folder of that path.  Raises UsageError."""
        found = self._inside(self.root, path)
        if not found.is_dir():
            raise UsageError(f"{path} is no folder below {self.root}.", "list_cases names those.")
        return found

    def evidence(self, path: str) -> list[dict[str, Any]]:
        """Files of a Case, each with its size in bytes."""
        folder = self.folder(path)
        files = sorted(one for one in folder.rglob("*") if one.is_file() and not one.is_symlink())
        return [
            {"file": str(one.relative_to(folder)), "bytes": one.stat().st_size} for one in files
        ]

    def text(self, path: str, file: str, offset: int = 0) -> dict[str, Any]:
        """Text of one such file from a byte on, and the offset to go on at, if any.

        Raises UsageError.
        """
        found = self._inside(self.folder(path), file)
        if not found.is_file() or found.suffix not in _TEXTS:
            raise UsageError(
                f"{file} is no text of {path}.", "list_evidence names the files of a Case."
            )
        with found.open("rb") as opened:
            opened.seek(max(0, offset))
            data = opened.read(MOST_BYTES)
            more = bool(opened.read(1))
        return {
            "text": data.decode(errors="backslashreplace"),
            "next_offset": max(0, offset) + len(data) if more else None,
        }

    def _found(self) -> Iterator[Path]:
        for parent, names, files in os.walk(self.root):
            names.sort()
            if folders.HOSTS in names or folders.MANIFEST in files:
                names.clear()
                yield Path(parent)

    def _described(self, path: Path) -> dict[str, Any]:
        name = str(path.relative_to(self.root))
        try:
            job = CaseReader(path).job
        except NotACase as error:
            return {"path": name, "unusable": str(error)}
        return {
            "path": name,
            "world_size": job.world_size if job is not None else None,
            "started_ns": job.started.wall_ns if job is not None else None,
            "captured": job.trigger.detail if job is not None and job.trigger is not None else None,
        }

    @staticmethod
    def _inside(root: Path, path: str) -> Path:
        found = (root / path).resolve()
        if not found.is_relative_to(root):
            raise UsageError(f"{path} is outside of what may be read.")
        return found
