"""Files of a folder that may be dumps, and the ranks that their names speak of."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Folders below the given one that are entered, and files that are looked at.
MAX_DEPTH = 8
MAX_FILES = 200_000
#: Folders that are looked through for Cases.
MAX_FOLDERS = 10_000

_SUFFIXES = (".pickle", ".pkl", ".json", ".bin", ".pt", ".dump", ".dmp", ".trace", ".txt")
_NAMED = re.compile(r"rank[^0-9A-Za-z]{0,2}(\d{1,7})(?!\d)", re.IGNORECASE)
_TRAILING = re.compile(r"(?<!\d)(\d{1,7})\Z")
_ATTEMPT = re.compile(r"(\d{1,7})\.\d{1,4}\Z")
_ANY = re.compile(r"(?<!\d)(\d{1,7})(?!\d)")


@dataclass(frozen=True)
class Candidate:
    """A regular file; ``name`` is its path below the folder, ``rank`` what the name says."""

    path: Path
    name: str
    rank: int | None
    size: int
    #: When it was last written.
    written_ns: int


def rank_in_name(name: str) -> int | None:
    """The rank that a path such as ``host1/nccl_trace_rank_12.pkl`` speaks of."""
    span = _rank_span(name)
    return int(name[slice(*span)]) if span else None


def name_without_rank(name: str) -> str:
    """The path with ``#`` for the rank that it speaks of: the same for files of one series."""
    span = _rank_span(name)
    return f"{name[: span[0]]}#{name[span[1] :]}" if span else name


def _rank_span(name: str) -> tuple[int, int] | None:
    """Position of the rank in a path, from and to."""
    folder, slash, stem = name.rpartition("/")
    for suffix in _SUFFIXES:
        if stem.lower().endswith(suffix):
            stem = stem[: -len(suffix)]
            break
    begin = len(folder) + len(slash)
    for pattern in (_NAMED, _TRAILING):
        found = pattern.search(stem)
        if found:
            return begin + found.start(1), begin + found.end(1)
    # ``rank3/dump.pickle``, and ``ranks/3.0/flight_recorder.pickle`` of a Case.
    begin_folder = folder.rfind("/") + 1
    for pattern in (_NAMED, _ATTEMPT):
        found = pattern.search(folder[begin_folder:])
        if found:
            return begin_folder + found.start(1), begin_folder + found.end(1)
    numbers = list(_ANY.finditer(stem))
    if len(numbers) != 1:
        return None
    return begin + numbers[0].start(1), begin + numbers[0].end(1)


def find_candidates(folder: Path) -> Iterator[Candidate]:
    """Every regular file below ``folder``, each once, in the order of their names.

    Nothing is opened: FIFOs, sockets and devices are passed over, hidden files
    and folders too.  Links are followed, and a folder is entered only once.
    """
    left = MAX_FILES
    seen: set[tuple[int, int]] = set()
    pending = [(folder, "", 0)]
    while pending:
        current, prefix, depth = pending.pop()
        try:
            entries = sorted(os.scandir(current), key=lambda entry: entry.name)
        except OSError:
            continue
        folders = []
        for entry in entries:
            if entry.name.startswith("."):
                continue
            left -= 1
            if left < 0:
                return
            try:
                status = entry.stat()
            except OSError:  # a link to nowhere, or to itself
                continue
            identity = (status.st_dev, status.st_ino)
            if identity in seen:
                continue
            name = f"{prefix}{entry.name}"
            if stat.S_ISREG(status.st_mode):
                seen.add(identity)
                yield Candidate(
                    Path(entry.path), name, rank_in_name(name), status.st_size, status.st_mtime_ns
                )
            elif stat.S_ISDIR(status.st_mode) and depth < MAX_DEPTH:
                seen.add(identity)
                folders.append((Path(entry.path), f"{name}/", depth + 1))
        pending.extend(reversed(folders))


def cases_below(folder: Path) -> list[Path]:
    """Folders of Cases below ``folder``, in the order of their names, links not followed."""
    found = []
    pending = [(folder, 0)]
    looked_at = 0
    while pending and looked_at < MAX_FOLDERS:
        current, depth = pending.pop()
        looked_at += 1
        try:
            entries = sorted(os.scandir(current), key=lambda entry: entry.name, reverse=True)
        except OSError:
            continue
        folders = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
        if {"manifest.json", "hosts"} <= {entry.name for entry in entries}:
            found.append(current)
        elif depth < MAX_DEPTH:
            pending += [(Path(entry.path), depth + 1) for entry in folders]
    return found


def read_regular(path: Path, limit: int) -> bytes:
    """The bytes of a regular file, at most ``limit``; OSError if it became something else."""
    # Without O_NONBLOCK, a FIFO put in the file's place would block for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("is no regular file any more")
        # One byte more than there should be tells the end.
        most = min(max(status.st_size + 1, 1 << 16), 1 << 24)
        with open(descriptor, "rb", buffering=0, closefd=False) as file:
            pieces = []
            while limit > 0:
                piece = file.read(min(limit, most))
                if not piece:
                    break
                pieces.append(piece)
                limit -= len(piece)
            return b"".join(pieces) if len(pieces) != 1 else pieces[0]
    finally:
        os.close(descriptor)
