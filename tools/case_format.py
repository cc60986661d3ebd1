"""Parts of ``docs/case-format.md`` that follow from the table of evidence files and its records.

``python -m tools.case_format`` writes the list of files anew, and for a file that the page lacks
yet a line on who writes it and a section with its keys, out of the docstring and the comments of
its record.  Tests compare.
"""

from __future__ import annotations

import ast
import fnmatch
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.case.file_kinds import EvidenceFile, FileSet, JsonFile, Scope

PAGE = Path(__file__).parents[1] / "docs" / "case-format.md"
_BEGIN, _END = "## Files\n\n```\n", "```\n"
_WRITERS = "| file | written by | when |\n|---|---|---|\n"
#: Columns that the name of a file takes, and what it is about.
_NAME, _CONTENT = 40, 57
_WIDTH = 95


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


def named_patterns(page: str) -> dict[str, list[str]]:
    """Names of files in the table of writers, some of them patterns, each with its line's cells."""
    lines = page.split(_WRITERS)[1].split("\n\n")[0].splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines]
    return {name: line for line in cells for name in re.findall(r"`([^`]+)`", line[0])}


def explained_records(page: str) -> dict[str, set[str]]:
    """Sections of the page by the names in their titles, each with the words in its code spans."""
    found = {}
    for part in page.split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        words = {
            word for span in re.findall(r"`([^`]+)`", text) for word in re.findall(r"\w+", span)
        }
        for name in title.split(", "):
            found[name] = words
    return found


def with_new_files(page: str) -> str:
    """The page with a line and a section for each file that it does not name."""
    explained = explained_records(page)
    known = [
        file.record() for file in files.evidence_files()
        if isinstance(file, JsonFile) and file.name in explained
    ]  # fmt: skip
    for file in files.evidence_files():
        if not any(fnmatch.fnmatch(file.name, name) for name in named_patterns(page)):
            before, after = page.split(_WRITERS)
            line = f"| `{file.name}` | {' | '.join(_writer(file))} |\n"
            page = f"{before}{_WRITERS}{line}{after}"
        if isinstance(file, JsonFile) and file.name not in explained:
            record = file.record()
            if record in known or not isinstance(record, type):
                continue
            if issubclass(record, msgspec.Struct):
                known.append(record)
                page = f"{page.rstrip()}\n\n{_section(file.name, record)}"
    return page


def _writer(file: EvidenceFile[Any]) -> tuple[str, str]:
    """The writer of a file and the time of that, by the file's row."""
    if file.of_capture:
        return "agent", "at the capture"
    if file.snapshot:
        return "rank", "when asked to at the capture; at the end of its main program"
    return ("rank" if file.scope is Scope.RANK else "agent"), "as it is gathered"


def _section(name: str, record: type[msgspec.Struct]) -> str:
    """A section on a file: what its record is, and a row for each key."""
    comments = _comments(record)
    paragraphs = (inspect.getdoc(record) or "").replace("``", "`").split("\n\n")
    text = "\n\n".join(textwrap.fill(one, _WIDTH) for one in paragraphs)
    rows = [
        f"| `{field.encode_name}` | {comments.get(field.name, '')} |\n"
        for field in msgspec.structs.fields(record)
    ]
    return f"## {name}\n\n{text}\n\n| key | |\n|---|---|\n{''.join(rows)}"


def _comments(record: type[msgspec.Struct]) -> dict[str, str]:
    """The comments (``#:``) above the fields of a record, as a page writes them."""
    source = textwrap.dedent(inspect.getsource(record))
    lines = source.splitlines()
    (class_,) = ast.parse(source).body
    assert isinstance(class_, ast.ClassDef)
    found = {}
    for field in class_.body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            above: list[str] = []
            for line in reversed(lines[: field.lineno - 1]):
                if not line.strip().startswith("#:"):
                    break
                above.insert(0, line.strip().removeprefix("#:").strip())
            found[field.target.id] = " ".join(above).replace("``", "`").rstrip(".")
    return found


if __name__ == "__main__":
    PAGE.write_text(with_new_files(with_listing(PAGE.read_text())))
