"""Outputs of an evaluation: the terminal, and files in three forms."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hanglab.harness.errors import UsageError
from hanglab.harness.evaluation.evaluation import Evaluation
from hanglab.harness.evaluation.reliability import Bin
from hanglab.harness.evaluation.showing import to_markdown, to_page
from hanglab.harness.evaluation.tables import ReportTable, confusion_matrix, tables_of
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
        tables = [*tables_of(found, everything=True), confusion_matrix(found.measures)]
        self.write_all(found, tables_of(found), tables, found.measures.reliability)

    def write_all(
        self,
        content: object,
        tables: Sequence[ReportTable],
        page_tables: Sequence[ReportTable],
        bins: Sequence[Bin] = (),
    ) -> None:
        """Write ``content`` as JSON, and the tables.  Raises ArtifactsError."""
        if self.json is not None:
            text = msgspec.json.format(msgspec.json.encode(content), indent=1).decode()
            write_text(self.json, text + "\n")
        if self.markdown is not None:
            write_text(self.markdown, to_markdown(_TITLE, tables))
        if self.html is not None:
            write_text(self.html, to_page(_TITLE, page_tables, bins))


def write_text(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ArtifactsError(f"{path} cannot be written: {error.strerror or error}") from error
