"""Strangers' text made harmless: shown as it is, and never taken for an instruction.

Names of files, functions, groups and hosts, messages and lines of code come out of other
people's jobs.  In a terminal a control character moves the cursor or changes its title, and a
mark of direction lets a line read as another.
"""

from __future__ import annotations

import unicodedata

#: Characters of one text that are shown; the rest is counted.
MOST_SHOWN = 600
#: Format characters that scripts and emoji need; they move nothing.
_JOINERS = frozenset("\u200c\u200d")


def shown(text: str, most: int = MOST_SHOWN) -> str:
    """The text on one line, with escapes for what a terminal would obey, cut to ``most``."""
    left = len(text) - most
    if left > 0:
        text = text[:most]
    plain = text if text.isprintable() else "".join(map(_visible, text))
    return f"{plain}… ({left:,} more characters)" if left > 0 else plain


def _visible(character: str) -> str:
    """The character, or the escape that stands for it in Python."""
    if character == " " or character.isprintable() or character in _JOINERS:
        return character
    if character in "\t\n\r" or unicodedata.category(character).startswith("Z"):
        return " "
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
