"""Texts of a folder: what they hold, as far as it is read, and the rank that a name speaks of."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

#: Bytes by which a file is known to be a text.
_HEAD = 4096
_JSON = re.compile(rb"\s*(?:\{|\[\s*[\[{\"])")
_GZIP = b"\x1f\x8b"
_WIDE = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
#: Share of bytes that no text has, in one that was cut or written over.
_STRAY_BYTES = 0.02
_CONTROL = bytes(sorted({*range(32)} - {*b"\t\n\r\f\b\x1b"}))
#: Bytes at the beginning and at the end that are read of a large one: what a job is, and why it
#: ended.  Of the rest the lines around words of failures are, as much as ``_MOST_BETWEEN``.
_BEGINNING = 1 << 20
_END = 4 << 20
_MOST_BETWEEN = 2 << 20
_AROUND = 8192
#: Of what is larger only the end is read behind these.
_LARGEST = 1 << 28
#: Characters of a line that are read: no word that tells stands behind them.
_LONGEST_LINE = 4000
_FAILURES = re.compile(
    rb"Traceback \(most recent call last\)|CUDA error|terminate called|Fatal Python error"
    rb"|NCCL WARN|oom[-_]kill|Root Cause|exitcode|Watchdog caught|failed to pass monitoredBarrier"
)
_OF_RANK = re.compile(
    r"(?<![a-z])(?<!node[_-])(?<!local[_-])(?<!group[_-])(?:global[_-]?)?rank[^0-9A-Za-z]{0,2}"
    r"(\d{1,7})(?!\d)",
    re.IGNORECASE,
)
_OF_LOCAL_RANK = re.compile(r"local[_-]?rank[^0-9A-Za-z]{0,2}(\d{1,4})(?!\d)", re.IGNORECASE)
#: torchrun's ``--log-dir``: the attempt, and below it a folder of each local rank.
_OF_TORCHRUN = re.compile(r"(?P<run>(?:.*/)?)attempt_(?P<attempt>\d+)/(?P<local>\d+)/[^/]+\Z")


@dataclass(frozen=True)
class LogFile:
    """A text; ``rank`` is what its name says, ``name`` its path below the folder."""

    name: str
    text: str
    rank: int | None = None
    #: Run and attempt of torchrun whose folder it lies in, and the rank among those of the host.
    run: str | None = None
    attempt: int = 0
    local_rank: int | None = None
    #: Bytes that were not read.
    left_out: int = 0
    #: What the lines have before them that this part of the file is; "" for the others, or all.
    part: str = ""


def read_logs(folder: Path, names: Iterable[str]) -> list[LogFile]:
    """The texts among files of a folder, in the order of their names."""
    found = []
    for name in sorted(names):
        read = _read(folder / name)
        if read is not None:
            found.append(_named(name, *read))
    return found


def _named(name: str, text: str, left_out: int) -> LogFile:
    below = _OF_TORCHRUN.search(name)
    if below is not None:
        attempt, local = int(below["attempt"]), int(below["local"])
        return LogFile(name, text, None, below["run"], attempt, local, left_out)
    path = PurePosixPath(name)
    ranks = [_OF_RANK.search(part) for part in (path.name, path.parent.name)]
    rank = next((int(match[1]) for match in ranks if match is not None), None)
    of_host = _OF_LOCAL_RANK.search(path.name) if rank is None else None
    if of_host is not None:
        return LogFile(name, text, None, f"{path.parent}/", 0, int(of_host[1]), left_out)
    return LogFile(name, text, rank, left_out=left_out)


def _read(path: Path) -> tuple[str, int] | None:
    """The text that is read of a file, and how many bytes are not; None where it is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        try:
            size = os.fstat(descriptor).st_size
            head = file.read(_HEAD)
            data = head + file.read(min(size, _LARGEST))
            if head.startswith(_GZIP):
                data = zlib.decompressobj(31).decompress(data, _LARGEST)
            elif size > len(data):
                file.seek(max(size - _END, len(data)))
                data += b"\n" + file.read(_END)
            for mark, coding in _WIDE.items():
                if head.startswith(mark):
                    data = data.decode(coding, "replace").encode()
        except (OSError, zlib.error):
            return None
    if not _is_text(data[:_HEAD]):
        return None
    kept = data if len(data) <= _BEGINNING + _END else _telling(data)
    return _plain(kept), max(size, len(data)) - len(kept)


def _is_text(head: bytes) -> bool:
    """True for a text that is no JSON."""
    if _JSON.match(head):
        return False
    stray = len(head) - len(head.translate(None, _CONTROL))
    return bool(head.strip()) and stray <= _STRAY_BYTES * len(head)


def _telling(data: bytes) -> bytes:
    """Beginning and end of a large text, and between them what is around words of failures."""
    until = len(data) - _END
    parts, at, left = [data[:_BEGINNING]], _BEGINNING, _MOST_BETWEEN
    for match in _FAILURES.finditer(data, _BEGINNING, until):
        if match.start() < at:
            continue
        begin = max(data.rfind(b"\n", 0, max(at, match.start() - _AROUND)) + 1, at)
        end = data.find(b"\n", min(match.end() + _AROUND, until))
        end = until if end < 0 or end > until else end + 1
        if end - begin > left:
            break
        parts.append(data[begin:end])
        left -= end - begin
        at = end
    return b"\n".join([*parts, data[until:]])


def _plain(data: bytes) -> str:
    """Text with one kind of line end, also where a progress bar goes back to the line's begin."""
    text = data.translate(None, b"\0").decode("utf-8", "replace")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "\n".join(line[:_LONGEST_LINE] for line in text.split("\n"))
