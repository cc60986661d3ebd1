"""Entries of a corpus: a folder to analyze, packed, beside what is known and said of it.

An entry is two files, ``<origin>/<name>.tar.xz`` and ``<origin>/<name>.json``.
The archive holds a Case, or a bare folder of Flight Recorder dumps with the
times of its files, which the analyzer reads.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

ARCHIVE = ".tar.xz"


class Truth(msgspec.Struct, frozen=True):
    """The finding that a verdict should lead with; without a cause, any cause is right."""

    status: str
    cause: str | None = None
    culprits: list[int] = []


class CorpusEntry(msgspec.Struct, kw_only=True):
    """An entry's text.  ``licence`` is an SPDX identifier."""

    source: str
    licence: str
    #: Any of these is right; None where no more is known than that nothing may crash.
    truth: list[Truth] | None
    #: JSON of the verdict, of the refusal (``error``, ``advice``); None until accepted.
    verdict: dict[str, Any] | None = None


def entry_names(corpus: Path) -> list[str]:
    """Names such as ``local/crash.fault``, sorted."""
    found = (path.relative_to(corpus).as_posix() for path in corpus.rglob(f"*{ARCHIVE}"))
    return sorted(name.removesuffix(ARCHIVE) for name in found)


def read_entry(corpus: Path, name: str) -> CorpusEntry:
    return msgspec.json.decode((corpus / f"{name}.json").read_bytes(), type=CorpusEntry)


def write_entry(corpus: Path, name: str, entry: CorpusEntry) -> None:
    text = msgspec.json.format(msgspec.json.encode(entry), indent=1)
    (corpus / f"{name}.json").write_bytes(text + b"\n")


def add_entry(corpus: Path, name: str, folder: Path, entry: CorpusEntry) -> None:
    """Pack a folder's regular files as a new entry.  Raises FileExistsError."""
    target = corpus / f"{name}{ARCHIVE}"
    target.parent.mkdir(parents=True, exist_ok=True)
    # Files of one name are alike across ranks: side by side they share the packer's window.
    files = sorted(_regular_files(folder), key=lambda path: (path.name, path))
    with tarfile.open(target, "x:xz", format=tarfile.PAX_FORMAT, preset=6) as archive:
        for path in files:
            member = tarfile.TarInfo(path.relative_to(folder).as_posix())
            member.size = path.stat().st_size
            member.mtime = path.stat().st_mtime
            with path.open("rb") as file:
                archive.addfile(member, file)
    write_entry(corpus, name, entry)


def _regular_files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def unpack_entry(corpus: Path, name: str, folder: Path) -> None:
    """Unpack into a folder that is made, with the times of the files."""
    folder.mkdir()
    with tarfile.open(corpus / f"{name}{ARCHIVE}") as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None, f"{name} holds {member.name}, which is no regular file"
            target = folder / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read())
            os.utime(target, (member.mtime, member.mtime))
