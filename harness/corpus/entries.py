"""Entries of a corpus: a folder to analyze, packed, beside what is known and said of it.

An entry is two files, ``<origin>/<name>.tar.xz`` and ``<origin>/<name>.json``.
The archive holds a Case, or a bare folder of Flight Recorder dumps with the
times of its files, which the analyzer reads.
"""

from __future__ import annotations

import contextlib
import lzma
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from hanglab.harness.errors import HanglabError

ARCHIVE = ".tar.xz"
#: Compressed, a few kilobytes may claim any number of bytes.
_MOST_BYTES = 4 << 30


class CorpusError(HanglabError):
    """A corpus, or an entry of one, cannot be read."""

    advice = "`hanglab corpus check` names every such entry; mend it, or take it out."


class Truth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The finding that a verdict should lead with; without a cause, any cause is right.

    ``lines`` are those of which the verdict should name one, in ``file`` (its last parts) where
    that is known; without any, the line is not judged.
    """

    status: str
    cause: str | None = None
    culprits: list[int] = []
    lines: list[int] = []
    file: str | None = None


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
    """The entry's text.  Raises CorpusError where there is none, or none that says its truth."""
    try:
        return msgspec.json.decode((corpus / f"{name}.json").read_bytes(), type=CorpusEntry)
    except FileNotFoundError:
        raise CorpusError(
            f"{name} has no label: {name}.json is missing.",
            "Add Cases with `hanglab corpus add`, which asks for the label.",
        ) from None
    except OSError as error:
        raise CorpusError(f"The label of {name} cannot be read: {error.strerror}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorpusError(f"The label of {name} is not one: {error}.") from error


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


def remove_entry(corpus: Path, name: str) -> None:
    """Remove what there is of an entry."""
    for ending in (ARCHIVE, ".json"):
        with contextlib.suppress(OSError):
            (corpus / f"{name}{ending}").unlink()


def _regular_files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def unpack_entry(corpus: Path, name: str, folder: Path) -> None:
    """Unpack into a folder that is made, with the times of the files.

    Raises CorpusError for an archive that is damaged, or that would write elsewhere.
    """
    folder.mkdir()
    try:
        with tarfile.open(corpus / f"{name}{ARCHIVE}", "r:xz") as archive:
            _unpack(archive, folder)
    except _BadArchive as error:
        raise CorpusError(f"The archive of {name} {error}.") from None
    except (OSError, EOFError, tarfile.TarError, lzma.LZMAError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise CorpusError(f"The archive of {name} cannot be unpacked: {why}.") from error


class _BadArchive(Exception):
    """An archive does something that none of a corpus should."""


def _unpack(archive: tarfile.TarFile, folder: Path) -> None:
    left = _MOST_BYTES
    made = {folder}
    for member in archive:
        file = archive.extractfile(member) if member.isreg() else None
        if file is None:
            raise _BadArchive(f"holds {member.name}, which is no regular file")
        parts = Path(member.name).parts
        if not parts or Path(member.name).is_absolute() or ".." in parts:
            raise _BadArchive(f"would write to {member.name}")
        left -= member.size
        if left < 0:
            raise _BadArchive(f"holds more than {_MOST_BYTES >> 30} GiB")
        target = folder / member.name
        if target.parent not in made:
            target.parent.mkdir(parents=True, exist_ok=True)
            made.add(target.parent)
        target.write_bytes(file.read())
        with contextlib.suppress(OverflowError):
            os.utime(target, (member.mtime, member.mtime))
