"""Texts made of bytes that are no UTF-8, such as names of files: JSON cannot bear them.

Python decodes such bytes as lone surrogates (PEP 383).  Here each becomes the six characters
that stand for it in Python, so that the name stays recognisable and everybody can read the file.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_LONE = re.compile("[\ud800-\udfff]")


def encode_json(value: Any) -> bytes:
    """JSON of records or plain data."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_readable(msgspec.to_builtins(value)))


def decode_json(data: bytes, type_: type[T]) -> T:
    """A value out of JSON with lone surrogates.  Raises MsgspecError, ValueError."""
    return msgspec.convert(_readable(json.loads(data)), type_, str_keys=True)


def may_hold_surrogates(data: bytes) -> bool:
    return b"\\ud" in data or b"\\uD" in data


def _readable(value: Any) -> Any:
    if isinstance(value, str):
        return _LONE.sub(lambda one: f"\\u{ord(one[0]):04x}", value)
    if isinstance(value, dict):
        return {_readable(key): _readable(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_readable(one) for one in value]
    return value
