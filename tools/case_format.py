"""The list of files in ``docs/case-format.md``, made of the table of evidence files.

``python -m tools.case_format`` writes it anew into the page; a test compares.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.case.file_kinds import FileSet, Scope

PAGE = Path(__file__).parents[1] / "docs" / "case-format.md"
_BEGIN, _END = "## Files\n\n```\n", "```\n"
#: Columns that the name of a file takes, and what it is about.
_NAME, _CONTENT = 40, 57


def listing() -> str:
    """A line or more for each file of a Case, in the order of the table."""
    lines = ["CASE/"]
    lines += _listed("  ", folders.MANIFEST, "every file with size and checksum, every absence")
    for scope, indent, parent in (
        (Scope.JOB, "  ", ""),
        (Scope.HOST, "  ", "hosts/<host>/"),
        (Scope.RANK, "      ", ""),
    ):
        if scope is Scope.RANK:
            lines.append("  hosts/<host>/ranks/<rank>.<attempt>/")
        for file in files.evidence_files(scope):
            slash = "/" if isinstance(file, FileSet) else ""
            lines += _listed(indent, parent + file.name + slash, file.content)
            if file.snapshot:
                lines += _listed(indent, file.snapshot_name, "as it was at the capture")
    return "".join(f"{line}\n" for line in lines)


def _listed(indent: str, name: str, content: str) -> Iterator[str]:
    first = f"{indent}{name}"
    if len(first) >= _NAME:
        yield first
        first = ""
    for line in textwrap.wrap(content, _CONTENT):
        yield f"{first:<{_NAME}}{line}"
        first = ""


def with_listing(page: str) -> str:
    """The page with the list that the table makes."""
    before, rest = page.split(_BEGIN)
    _, after = rest.split(_END, 1)
    return f"{before}{_BEGIN}{listing()}{_END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_listing(PAGE.read_text()))
