"""Single values of a dump, whatever form a version, a backend or a stranger gave them.

Nothing here raises, recurses, or hashes anything but plain text and numbers.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from hanglab.analyzer.flight_recorder.columns import ABSENT, Operation

_INT64 = 1 << 63
#: Text beyond this is cut.
MAX_TEXT = 2000
_NUMBER = re.compile(r"-?\d{1,19}")
_PEERS = re.compile(r"\s*(-?\d{1,9})\s*(->|<-)\s*(-?\d{1,9})\s*\Z")
#: Longest member lists, in characters, of which many and one are remembered: of 50,000 and, with
#: 10 MiB, of 250,000 ranks.
_CACHED, _CACHED_ALONE = 400_000, 2_000_000
#: No job has so many ranks.
MAX_RANK = 1 << 24


def as_int(value: Any, default: int = ABSENT) -> int:
    """``value`` as a 64-bit integer: numbers, and text that holds one."""
    kind = type(value)
    if kind is str:
        if len(value) > 40:
            return default
        try:
            value = int(value)
        except ValueError:
            return default
    elif kind is float:
        if not -9.2e18 < value < 9.2e18:  # NaN fails both comparisons
            return default
        value = int(value)
    elif kind is not int and kind is not bool:
        return default
    return int(value) if -_INT64 <= value < _INT64 else default


def as_float(value: Any) -> float:
    """``value`` as a float, NaN where it is no number."""
    kind = type(value)
    if kind is str and len(value) <= 40:
        try:
            return float(value)
        except ValueError:
            return float("nan")
    if kind is float or kind is bool:
        return float(value)
    if kind is int:
        return float(value) if abs(value) < _INT64 else float("nan")
    return float("nan")


def as_text(value: Any) -> str:
    """Text as it is, cut where it is absurdly long; numbers in digits; else ""."""
    if type(value) is str:
        return value if len(value) <= MAX_TEXT else value[:MAX_TEXT]
    if type(value) is bytes:
        return value[:MAX_TEXT].decode("utf-8", "replace")
    if type(value) is int and abs(value) < _INT64:
        return str(value)
    return ""


def as_bool(value: Any) -> bool:
    if type(value) is str:
        return value.lower() in ("true", "1")
    return value is True or (type(value) is int and value != 0)


def _ranks_in(text: str) -> tuple[int, ...]:
    return _believable([int(number) for number in _NUMBER.findall(text)])


_one_of_many = lru_cache(maxsize=32)(_ranks_in)
#: The list of all ranks, which every dump of a job has.
_alone = lru_cache(maxsize=1)(_ranks_in)


def _believable(ranks: list[int]) -> tuple[int, ...]:
    if ranks and (min(ranks) < 0 or max(ranks) >= MAX_RANK or len(set(ranks)) < len(ranks)):
        return ()
    return tuple(ranks)


def as_ranks(value: Any) -> tuple[int, ...]:
    """The members of a group: ``"[0, 4]"`` or a list; () where they are not given."""
    if type(value) is str:
        # Most of the dumps of a job repeat the same few lists.
        if len(value) < _CACHED:
            return _one_of_many(value)
        return _alone(value) if len(value) < _CACHED_ALONE else _ranks_in(value)
    if type(value) in (list, tuple):
        return _believable([as_int(member) for member in value])
    return ()


@lru_cache(maxsize=4096)
def as_operation(name: str) -> Operation:
    """``nccl:recv 0<-1`` in its parts; a name without a backend has backend ""."""
    src = dst = ABSENT
    peers = _PEERS.search(name, max(0, len(name) - 40))
    if peers:
        left, arrow, right = peers.groups()
        src, dst = (int(left), int(right)) if arrow == "->" else (int(right), int(left))
        name = name[: peers.start()]
    backend, colon, op = name.partition(":")
    if not colon:
        backend, op = "", name
    return Operation(backend.strip(), op.strip(), max(src, ABSENT), max(dst, ABSENT))
