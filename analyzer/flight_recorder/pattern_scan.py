"""Follows the bytes that torch's pickler writes, operation by operation."""

from __future__ import annotations

import re

_NAME = b"X\x07\0\0\0entries"
_ENTRIES = re.compile(_NAME + rb"(?:q.|r.{4})\]\((?=\}\(X(.)\0{3})", re.DOTALL)
#: Operations of plain data that have a length of their own and leave the memo alone.
PLAIN = rb"(?:h.|j.{4}|K.|M.{2}|J.{4}|\x8a\x08.{8}|G.{8}|[](})eutNa\x85\x86\x87\x88\x89])"
RUN = re.compile(PLAIN + b"*", re.DOTALL)


def find_entries(data: bytes) -> int | None:
    """Place at which the first entry begins, if that can be seen."""
    # Python's pickler remembers the list too: the rest of such a file need not be searched.
    at = data.find(_NAME) if data[:2] == b"\x80\x02" else -1
    found = _ENTRIES.match(data, at) if at >= 0 else None
    return None if found is None else found.end()


def written(data: bytes, text: bytes, begin: int, end: int) -> int:
    """Place at which a text is written out, -1 if nowhere."""
    return data.find(b"X" + len(text).to_bytes(4, "little") + text, begin, end)


def key_at(data: bytes, at: int) -> int | None:
    """The place in the memo of the text that is written at ``at``; None beyond 255."""
    after = at + 5 + int.from_bytes(data[at + 1 : at + 5], "little")
    return data[after + 1] if data[after : after + 1] == b"q" and after + 1 < len(data) else None


class Scan:
    """Follows operations one by one: what it has passed is nothing but plain data.

    No place of the memo may be filled twice, so a place means the same to all entries.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.last_put = -1
        #: Places that were filled, as far as nobody has cleared this.
        self.puts: list[int] = []

    def reaches(self, start: int, end: int) -> bool:
        """True if an operation ends at ``end`` if one begins at ``start``."""
        data, at = self._data, start
        while at < end:
            at = RUN.match(data, at, end).end()  # type: ignore[union-attr]
            opcode = data[at : at + 1]
            if at >= end:
                break
            if opcode == b"X":
                at += 5 + int.from_bytes(data[at + 1 : at + 5], "little")
                continue
            if opcode == b"q":
                put, size = data[at + 1] if at + 1 < end else -1, 2
            elif opcode == b"r":
                put, size = int.from_bytes(data[at + 1 : at + 5], "little"), 5
            else:
                return False
            if put <= self.last_put:
                return False
            self.last_put = put
            self.puts.append(put)
            at += size
        return at == end
