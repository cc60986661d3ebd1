"""Tells what the bytes of a file are, and decodes the two forms that a dump has."""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Callable
from typing import Any, NoReturn

from hanglab.analyzer.flight_recorder.columns import Entries, RankDump
from hanglab.analyzer.flight_recorder.content import read_content
from hanglab.analyzer.flight_recorder.decoding import Decoded, decode_pickle
from hanglab.analyzer.flight_recorder.entry_kinds import WrongKinds
from hanglab.analyzer.flight_recorder.errors import DumpError, RefusedDump
from hanglab.analyzer.flight_recorder.json_text import decode_json
from hanglab.analyzer.flight_recorder.pattern_reader import Likenesses
from hanglab.analyzer.flight_recorder.repeated_entries import thin

_MAGIC = {
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"GIF8": "a GIF picture",
    b"%PDF": "a PDF document",
    b"\x7fELF": "a program",
    b"PK\x03\x04": "a zip archive: unpack it",
    b"\x1f\x8b": "compressed with gzip: unpack it",
    b"\x28\xb5\x2f\xfd": "compressed with zstd: unpack it",
    b"BZh": "compressed with bzip2: unpack it",
    b"\xfd7zXZ": "compressed with xz: unpack it",
    b"SQLite": "a database",
    b"PAR1": "a Parquet file",
    b"#!": "a script",
}
_OLD_PICKLE = (b"(d", b"(l", b"}q", b"]q", b"}(", b"}.", b"].")
_OLD_CODE = re.compile(rb"\(?[ci][A-Za-z_][\w.]*\n[A-Za-z_]\w*\n|\([SVU]")
_JSON_START = re.compile(rb"(?:\xef\xbb\xbf)?\s*{")
#: Bytes that :func:`foreign` needs.
HEAD = 4096
#: Smaller files have too few entries to tell kinds of them apart.
_WORTH_THINNING = 10_000
#: What this process has read.
_LIKENESSES = Likenesses()


def foreign(head: bytes) -> str:
    """Format of a file whose first bytes show that it is no dump, else ""."""
    if not head:
        return "empty"
    for magic, what in _MAGIC.items():
        if head.startswith(magic):
            return f"not a dump: {what}"
    if head[0] == 0x80:
        return "" if head[1:2] <= b"\x08" else "not a dump: unknown bytes"
    if _JSON_START.match(head) or head.startswith(_OLD_PICKLE) or _OLD_CODE.match(head):
        return ""
    if not head.strip(b"\0"):
        return "not a dump: holds only zeros"
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        cut = len(head) == HEAD and error.start > HEAD - 4  # in the middle of a character
        return "not a dump: text" if cut else "not a dump: unknown bytes"
    return "not a dump: text"


class _DataOnly(pickle.Unpickler):
    """C's unpickler with every way to a name closed."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise RefusedDump(f"{module[:80]}.{name[:80]}")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise RefusedDump("a persistent reference")


def _buffered(data: bytes) -> io.BufferedReader:
    # C's unpickler reads a few bytes at a time from whatever cannot be peeked into.
    return io.BufferedReader(io.BytesIO(data), 1 << 20)


def read_dump(data: bytes, *, rank: int, source: str, contained: bool) -> RankDump:
    """The dump in ``data``.

    ``contained`` says that this process has limits on memory and time and may
    die: then C's unpickler is used first, else only decoders whose effort is
    linear in ``len(data)``.  Raises DumpError with the reason.
    """
    what = foreign(data[:HEAD])
    if what:
        raise DumpError(what)
    from_json = _JSON_START.match(data) is not None
    if from_json:
        decoded = decode_json(data)
    else:
        if data[0] != 0x80:
            _check_old_pickle(data)
        elif contained and len(data) > _WORTH_THINNING:
            dump = _by_kinds(data, rank=rank, source=source)
            if dump is not None:
                return dump
        decoded = (_by_c(data) if contained else None) or decode_pickle(data)
    return read_content(decoded, rank=rank, source=source, from_json=from_json, contained=contained)


def _by_kinds(data: bytes, *, rank: int, source: str) -> RankDump | None:
    """The dump in ``data`` if its entries repeat as they do in what torch writes."""

    def content(decoded: Decoded, whole: Callable[[Entries], Entries]) -> RankDump | None:
        try:
            return read_content(
                decoded, rank=rank, source=source, from_json=False, contained=True, whole=whole
            )
        except WrongKinds:
            return None

    recalled = _LIKENESSES.recall(data, _by_c)
    if recalled is not None:
        dump = content(*recalled)
        if dump is not None and dump.entries is not None and not dump.damage:
            return dump
    thinned = thin(data)
    decoded = _by_c(thinned.data) if thinned is not None else None
    if thinned is None or decoded is None:
        return None
    dump = content(decoded, thinned.expand)
    if dump is not None and dump.entries is not None and not dump.damage:
        _LIKENESSES.learn(data, thinned, dump.entries, _by_c)
    return dump


def _by_c(data: bytes) -> Decoded | None:
    """Value that C's unpickler makes of ``data``; None if anything about it is not sound."""
    try:
        return Decoded(_DataOnly(_buffered(data)).load())
    except RefusedDump:
        raise
    except Exception:
        return None


def _check_old_pickle(data: bytes) -> None:
    """Protocols 0 and 1 start with no signature: text must not pass for code."""
    import pickletools  # rarely needed, and it takes as long as loading a dump

    code: str | None = None
    try:
        for opcode, argument, _position in pickletools.genops(data):
            if opcode.name in ("GLOBAL", "INST", "OBJ", "REDUCE", "BUILD", "PERSID", "BINPERSID"):
                code = code or str(argument or opcode.name)[:80]
    except Exception:
        if code is not None:
            raise DumpError("not a dump: text") from None
        return
    if code is not None:
        raise RefusedDump(code)
