"""Decoders of JSON by type, each made once: two jobs may be read at the same time.

msgspec keeps what it knows of a record's fields with the record's class, where another thread
finds it before it is complete, and crashes (SIGSEGV, 0.22).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msgspec.json import Decoder

_LOCK = threading.Lock()
_DECODERS: dict[Any, Decoder[Any]] = {}


def decoder_of(type_: Any, strict: bool = True) -> Decoder[Any]:
    """The decoder of a record, or of a list of records.  Safe to ask in any thread."""
    import msgspec

    with _LOCK:
        key = type_, strict
        if key not in _DECODERS:
            _DECODERS[key] = msgspec.json.Decoder(type_, strict=strict)
        return _DECODERS[key]
