"""Sizes of a loader's batches: ranks whose batches differ in size differ in work."""

from __future__ import annotations

import itertools
import time
from collections import UserDict
from collections.abc import Iterable
from struct import Struct
from typing import Any

from hanglab.recorder.case import layout
from hanglab.recorder.rank.progress_file import ProgressFile

#: Parts of a batch that are looked at, at most.
_LIMIT = 64


class BatchSizes:
    """Appends one record to the table BATCHES for each batch."""

    def __init__(self, progress: ProgressFile) -> None:
        self._mapping = progress.mapping
        self._place = progress.at[layout.BATCHES]
        self._pack = Struct("<4q").pack_into
        self._numbers = itertools.count(1)

    def note(self, batch: object) -> None:
        number = next(self._numbers)
        place = self._place + (number - 1) % layout.BATCHES.capacity * layout.BATCHES.record
        self._pack(self._mapping, place, number, time.time_ns(), elements(batch), number)


def elements(batch: object) -> int:
    """Elements of all tensors in nested lists, tuples and dicts; 0 where there are none.

    Of anything with the method ``numel``, so that torch need not be known.  Nothing else of the
    user's own types is called: what they give may be gone then, or be made only when it is asked.
    """
    total = 0
    pending: list[Any] = [batch]
    for _ in range(_LIMIT):
        if not pending:
            break
        part = pending.pop()
        if isinstance(part, (str, bytes)):
            continue
        if callable(count := getattr(part, "numel", None)):
            total += int(count())
        elif isinstance(part, UserDict):
            pending.append(part.data)
        elif isinstance(part, dict):
            pending += _first(dict.values(part))
        elif isinstance(part, (list, tuple)):
            pending += _first(part)
    return total


def _first(parts: Iterable[Any]) -> list[Any]:
    return list(itertools.islice(parts, _LIMIT))
