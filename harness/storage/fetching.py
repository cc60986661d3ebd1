"""Copies of what URLs lead to, for a while: a file after the other, block by block."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from hanglab.harness.storage import origins
from hanglab.harness.storage.errors import StorageError
from hanglab.harness.storage.locations import StoredPlace, asked, place_of
from hanglab.harness.storage.transfers import BLOCK, again, side_by_side

#: Told after each file how many have come, and of how many.
Told = Callable[[int, int], None]


@dataclass(frozen=True)
class StoredFile:
    """A file below a place; ``name`` is its path from there."""

    path: str
    name: str
    size: int | None
    modified_ns: int | None


@contextlib.contextmanager
def fetched(url: str, told: Told = lambda *_: None) -> Iterator[Path]:
    """A copy of the file or folder, which goes when the context ends.

    Raises StorageError, MissingExtra and UsageError; where a file comes in part, or not at all,
    there is no copy.
    """
    with TemporaryDirectory(prefix="hanglab-fetched-") as folder:
        copy = fetch(place_of(url), Path(folder), told)
        with origins.remembered(copy, url):
            yield copy


def fetch(place: StoredPlace, folder: Path, told: Told = lambda *_: None) -> Path:
    """Copies what is at the place below ``folder``, and gives the copy's path."""
    files = stored_files(place)
    into = folder / place.name
    come: list[StoredFile] = []

    def one(file: StoredFile) -> None:
        target = into / file.name if file.name else into
        target.parent.mkdir(parents=True, exist_ok=True)
        asked(place, lambda: again(lambda: _copy(place, file, target)))
        come.append(file)
        told(len(come), len(files))

    side_by_side(one, files)
    below = list(into.iterdir()) if into.is_dir() else []
    # Whoever makes an archive of a folder has the folder in it.
    in_archive = place.url.startswith("zip://") and len(below) == 1 and below[0].is_dir()
    return below[0] if in_archive else into


def stored_files(place: StoredPlace) -> list[StoredFile]:
    """The file at the place, or all files below, at least one.  Raises StorageError."""
    files = asked(place, lambda: again(lambda: list(_files(place))))
    if not files:
        raise StorageError(
            f"{place.url} leads to nothing.", "Check the bucket and the path after it."
        )
    return files


def _files(place: StoredPlace) -> Iterator[StoredFile]:
    """The file itself, or all files below."""
    found: dict[str, dict[str, Any]] = place.files.find(place.path, detail=True)
    root = place.path.strip("/")
    for path, info in found.items():
        if info.get("type") not in (None, "file"):
            continue
        below = path.strip("/")
        name = below[len(root) :].strip("/") if below != root else ""
        if name and not _stays_below(name):
            raise StorageError(
                f"{place.url} has a file whose name leads out of its folder: {name!r}.",
                "Nothing is fetched: look at what wrote it.",
            )
        yield StoredFile(path, name, _size(info), _modified_ns(place, path, info))


def _stays_below(name: str) -> bool:
    parts = PurePosixPath(name)
    return not parts.is_absolute() and ".." not in parts.parts and "\0" not in name


def _size(info: dict[str, Any]) -> int | None:
    size = info.get("size")
    return size if type(size) is int else None


def _modified_ns(place: StoredPlace, path: str, info: dict[str, Any]) -> int | None:
    """Time at which the file was last written, as far as the store tells."""
    if isinstance(info.get("mtime"), int | float):
        return int(info["mtime"] * 1e9)
    # `modified` would ask S3 for it again.
    if isinstance(info.get("LastModified"), datetime):
        return int(info["LastModified"].timestamp() * 1e9)
    with contextlib.suppress(Exception):  # many stores do not tell
        return int(place.files.modified(path).timestamp() * 1e9)
    return None


def _copy(place: StoredPlace, file: StoredFile, target: Path) -> None:
    """Copies one file, whole or not at all."""
    part = target.with_name(target.name + ".part")
    size = 0
    with place.files.open(file.path, "rb") as source, part.open("wb") as copy:
        while block := source.read(BLOCK):
            copy.write(block)
            size += len(block)
    if file.size is not None and size != file.size:
        raise ConnectionError(f"{file.path} ended after {size} of {file.size} bytes")
    if file.modified_ns is not None:
        os.utime(part, ns=(file.modified_ns, file.modified_ns))
    part.replace(target)
