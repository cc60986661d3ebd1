"""Outputs of an evaluation: the terminal, and files in three forms."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console

from hanglab.harness.errors import UsageError
from hanglab.harness.evaluation.evaluation import Evaluation
from hanglab.harness.evaluation.showing import print_tables, to_markdown, to_page
from hanglab.harness.evaluation.tables import confusion_matrix, tables_of
from hanglab.harness.jobs.run_folder import ArtifactsError

_TITLE = "hanglab: evaluation"


@dataclass(frozen=True)
class Outputs:
    """Files to write; None for those that nobody wants."""

    json: Path | None = None
    markdown: Path | None = None
    html: Path | None = None

    def check(self) -> None:
        """Raises UsageError now, rather than after minutes of work."""
        for path in (self.json, self.markdown, self.html):
            if path is None:
                continue
            folder = path.absolute().parent
            if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
                raise UsageError(
                    f"{path} cannot be written.", "Name a file in a folder that you may write to."
                )

    def write(self, found: Evaluation) -> None:
        """Write each file whole.  Raises ArtifactsError."""
        if self.json is not None:
            text = msgspec.json.format(msgspec.json.encode(found), indent=1).decode()
            write_text(self.json, text + "\n")
        if self.markdown is not None:
            write_text(self.markdown, to_markdown(_TITLE, tables_of(found)))
        if self.html is not None:
            tables = [*tables_of(found, everything=True), confusion_matrix(found.measures)]
            write_text(self.html, to_page(_TITLE, tables, found.measures.reliability))


def show(console: Console, found: Evaluation) -> None:
    """Print all tables; the sums come last, where they are seen."""
    print_tables(console, tables_of(found))


def write_text(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ArtifactsError(f"{path} cannot be written: {error.strerror or error}") from error
