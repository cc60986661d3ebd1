"""Text of strangers as a page shows it: nothing hidden, nothing that turns others round."""

from __future__ import annotations

import unicodedata
from enum import Enum
from typing import Any

import msgspec

#: Characters of one text that a page shows.  A line of source has 100, a message of torch with its
#: traceback a few thousand.
LONGEST = 4_000
#: What a reader cannot see, or what has others in the wrong place: controls, marks of direction,
#: lone surrogates, line and paragraph separators.  Line ends and tabs stay.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_KEPT = frozenset("\n\t")


def shown(text: str, longest: int = LONGEST) -> str:
    """``text`` with what is hidden in it written out, as in ``\\u202e``, and cut if too long."""
    if len(text) > longest:
        text = f"{text[:longest]} ... ({len(text) - longest} more characters)"
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_shown_character, text))


def _shown_character(character: str) -> str:
    if character in _KEPT or unicodedata.category(character) not in _HIDDEN:
        return character
    number = ord(character)
    if number <= 0xFF:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def shown_everywhere(value: Any) -> Any:
    """Plain data out of records, with every text in it as a page shows it."""
    if isinstance(value, str):
        return shown(value.value if isinstance(value, Enum) else value)
    if isinstance(value, dict):
        return {shown_everywhere(key): shown_everywhere(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        # Columns of numbers are long, and hold no text.
        if value and type(value[0]) is int:
            return value
        return [shown_everywhere(one) for one in value]
    if isinstance(value, msgspec.Struct):
        return shown_everywhere(msgspec.structs.asdict(value))
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return shown_everywhere(msgspec.to_builtins(value))
