"""Asks a pickle for what stands in its memo, in a way that no file can answer for itself."""

from __future__ import annotations

import secrets
from typing import Any

from hanglab.analyzer.flight_recorder.decoding import Decoded


class Marks:
    def __init__(self) -> None:
        self._nonce = secrets.token_hex(16)

    def row(self, gets: list[bytes]) -> list[bytes]:
        """Operations that make a row of what they get, which no file can have."""
        nonce = self._nonce.encode()
        return [b"(X", len(nonce).to_bytes(4, "little"), nonce, *gets, b"t"]

    def values(self, decoded: Decoded | None, count: int) -> list[Any] | None:
        """Content of the row that stands before all entries; None where there is none."""
        top = decoded.value if decoded is not None else None
        rows = top.get("entries") if type(top) is dict else None
        if type(rows) is not list or not rows or type(rows[0]) is not tuple:
            return None
        nonce, *values = rows[0] or (None,)
        return values if nonce == self._nonce and len(values) == count else None
