"""Writing a Case's records: JSON documents, JSON lines, and the manifest at the end."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar, overload

from hanglab.recorder.case import folders
from hanglab.recorder.case.file_kinds import JsonDocument, JsonFile, JsonLines, JsonList
from hanglab.recorder.case.records import FORMAT, Absence, Clock, FileEntry, Manifest
from hanglab.recorder.case.undecodable_text import encode_json

T = TypeVar("T")


def clock() -> Clock:
    """Both clocks, now."""
    return Clock(time.time_ns(), time.monotonic_ns())


@overload
def write(folder: Path, file: JsonDocument[T], content: T) -> None: ...
@overload
def write(folder: Path, file: JsonList[T] | JsonLines[T], content: Iterable[T]) -> None: ...
def write(folder: Path, file: JsonFile[Any, Any], content: Any) -> None:
    """Write a document of this folder, whole or not at all, or add lines.  Raises OSError."""
    data = file.encode(content)
    if not isinstance(file, JsonLines):
        write_bytes(folder / file.name, data)
    elif data:
        folders.make_private(folder)
        folders.append_line(folder / file.name, data[:-1])


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all, and the folder that it lies in.  Raises OSError."""
    folders.make_private(path.parent)
    folders.write_whole(path, data)


def write_tail(
    path: Path,
    source: Path,
    limit: int = folders.STDERR_BYTES,
    start: int = 0,
    without: Iterable[bytes] = (),
) -> None:
    """Copy the last ``limit`` bytes of a log, from the beginning of a line.

    What stands before byte ``start`` is none of its business, nor is any text of ``without``,
    which somebody else wrote into it.  Raises OSError.
    """
    with source.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        first = start if start <= size else 0
        start = max(first, size - limit)
        file.seek(start)
        data = file.read(limit)
    if start > first:
        data = data[data.find(b"\n") + 1 :]
    for text in without:
        data = data.replace(text, b"", 1)
    write_bytes(path, data)


def write_manifest(case: Path, recorder: str, absent: Iterable[Absence] = ()) -> Manifest:
    """List every file with size and SHA-256 and write ``manifest.json``.  Raises OSError.

    A file that vanishes or cannot be read meanwhile is listed as absent.
    """
    absences = list(absent)
    files = []
    for folder, names, leaves in os.walk(case):
        names.sort()
        for leaf in sorted(leaves):
            path = Path(folder) / leaf
            relative = path.relative_to(case).as_posix()
            if relative == folders.MANIFEST or leaf.startswith(".") or path.is_symlink():
                continue
            try:
                files.append(_entry(path, relative))
            except OSError as error:
                absences.append(Absence(relative, f"could not be read: {error.strerror}"))
    files.sort(key=lambda entry: entry.path)
    manifest = Manifest(FORMAT, recorder, clock(), files, absences)
    write_bytes(case / folders.MANIFEST, encode_json(manifest))
    return manifest


def _entry(path: Path, relative: str) -> FileEntry:
    digest = hashlib.sha256()
    size = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
            size += len(block)
    return FileEntry(relative, size, digest.hexdigest())
