"""Names that launchers put before each line of a rank, where all ranks write to one stream.

torchrun's ``--tee`` writes role and local rank, Open MPI's ``--tag-output`` job and rank, Slurm's
``--label`` the task, Ray the process, Determined and vLLM the rank; what collects the lines of a
container puts a time in front, and a terminal colours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_TIME = re.compile(r"^\[?\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\]? (?=\S)")
#: Each stands before the line; Determined puts a word in front of its own.
_PREFIXES = (
    re.compile(r"^\[\d+,(?P<rank>\d+)\](?:<std\w+>)?:"),
    re.compile(r"^(?:\S+ )?\[rank=(?P<rank>\d+)\] \|\| ?"),
    re.compile(r"^\([^()]*?\brank=(?P<rank>\d+)[^()]*\) ?"),
    re.compile(r"^\([^()]*?\bpid=(?P<pid>\d+)[^()]*\) ?"),
    # Torch's own, where it is behind another one.
    re.compile(r"^\[rank(?P<rank>\d+)\]: ?(?=\[rank\d+\]:)"),
    re.compile(r"^\[(?!rank\d)[A-Za-z_]+(?P<local>\d+)\]:"),
)
#: A task's number is a prefix only where all lines have one.
_LABEL = re.compile(r"^\s*(?P<rank>\d+): ")


class _RankOfHost(Protocol):
    @property
    def rank(self) -> int: ...
    @property
    def pid(self) -> int | None: ...
    @property
    def local_rank(self) -> int | None: ...


@dataclass(frozen=True)
class NamedLine:
    """A line without what was put before it, with its end; ``rank`` is None where nothing tells."""

    rank: int | None
    text: str


def without_prefixes(text: str, ranks: Iterable[_RankOfHost]) -> list[NamedLine]:
    """The lines that ``ranks`` of one host, and others, wrote to one stream."""
    own = sorted(ranks, key=lambda one: one.rank)
    untold = all(one.local_rank is None for one in own)
    numbers: Mapping[str, Mapping[int | None, int]] = {
        "rank": {one.rank: one.rank for one in own},
        "pid": {one.pid: one.rank for one in own},
        # Launchers give a host's ranks in a row.
        "local": {place if untold else o.local_rank: o.rank for place, o in enumerate(own)},
    }
    lines = [_plain(line) for line in text.splitlines(keepends=True)]
    labelled = _are_labelled(lines)
    prefixes = (*_PREFIXES, _LABEL) if labelled else _PREFIXES
    return [_named(prefixes, line, numbers) for line in lines]


def _plain(line: str) -> str:
    return _TIME.sub("", _COLOUR.sub("", line))


def _are_labelled(lines: Sequence[str]) -> bool:
    told = [line for line in lines if line.strip()]
    return len(told) > 1 and all(_LABEL.match(line) for line in told)


def _named(
    prefixes: Iterable[re.Pattern[str]], line: str, numbers: Mapping[str, Mapping[int | None, int]]
) -> NamedLine:
    for prefix in prefixes:
        match = prefix.match(line)
        if match is None:
            continue
        ((kind, number),) = [(k, int(v)) for k, v in match.groupdict().items() if v is not None]
        rank = numbers[kind].get(number)
        if rank is not None:
            return NamedLine(rank, line[match.end() :])
    return NamedLine(None, line)
