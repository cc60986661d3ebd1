"""Comparison of a Case with its manifest: is it still as its recorder left it?"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from hanglab.recorder.case.evidence_files import evidence_files
from hanglab.recorder.case.file_kinds import MappedFile
from hanglab.recorder.case.reader import CaseReader

#: Bytes that are hashed at a time, so few that the same memory serves again.
_BLOCK = 64 << 10


def regular_files(case: Path) -> list[str]:
    """Paths of all regular files, relative to the Case, sorted; links and hidden files are none."""
    found = []
    for folder, _, leaves in os.walk(case):
        for leaf in leaves:
            path = Path(folder) / leaf
            if not leaf.startswith(".") and path.is_file() and not path.is_symlink():
                found.append(path.relative_to(case).as_posix())
    return sorted(found)


def differences(reader: CaseReader, most_bytes: int | None = None) -> list[tuple[str, str]]:
    """(path, what is wrong) of each file that is missing or is not what the manifest lists.

    Empty where there is no manifest: then nobody says what the files were.  Of
    a job that was still running when the manifest was written, files may have
    grown since, and what a rank has in its memory changes all the time.  Of a Case of more than
    ``most_bytes`` only sizes are compared.
    """
    manifest = reader.manifest
    if manifest is None:
        return []
    over = reader.job is None or reader.job.ended is not None
    whole = most_bytes is None or sum(entry.size for entry in manifest.files) <= most_bytes
    mapped = {file.name for file in evidence_files() if isinstance(file, MappedFile)}
    wrong = []
    for entry in manifest.files:
        path = reader.path / entry.path
        if not _below(entry.path):
            wrong.append((entry.path, "is no path within the Case"))
            continue
        if not over and path.name in mapped:
            continue
        reason = _compare(path, entry.size, entry.sha256 if whole else None, grows=not over)
        if reason:
            wrong.append((entry.path, reason))
    return wrong


def _compare(path: Path, size: int, sha256: str | None, grows: bool) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        # fdopen() would refuse a folder, and leave it open.
        os.close(fd)
        return "is not a regular file"
    digest = hashlib.sha256()
    with os.fdopen(fd, "rb") as file:
        now = status.st_size
        if now < size or (now > size and not grows):
            return f"has {now} bytes instead of {size}"
        if sha256 is None:
            return ""
        left = size
        while left and (block := file.read(min(left, _BLOCK))):
            digest.update(block)
            left -= len(block)
    return "" if digest.hexdigest() == sha256 else "has been altered"


def _below(relative: str) -> bool:
    parts = relative.split("/")
    return bool(relative) and not relative.startswith("/") and ".." not in parts
