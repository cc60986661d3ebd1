"""Text of strangers in a page's data: nothing hidden, nothing that turns others round."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from hanglab.analyzer.plain_text import shown

#: Characters of one text in a page.  A line of source has 100, a message of torch with its
#: traceback a few thousand.
LONGEST = 4_000


def shown_everywhere(value: Any) -> Any:
    """Plain data out of records, with every text in it as people are shown it."""
    if isinstance(value, str):
        return shown(value.value if isinstance(value, Enum) else value, LONGEST)
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
