"""Names that launchers put before each line of a rank, where all ranks write to one stream.

torchrun's ``--tee`` writes role and local rank, Open MPI's ``--tag-output`` job and rank, Slurm's
``--label`` the task, Ray the process, Determined and vLLM the rank; what collects the lines of a
container puts a time in front, and a terminal colours.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_TIME = re.compile(r"^\[?\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\]? (?=\S)")
_LOCAL = re.compile(r"^\[(?!rank\d)[A-Za-z_]+(?P<local>\d{1,6})\]:")
#: Each stands before the line; Determined puts a word in front of its own.
PREFIXES = (
    re.compile(r"^\[\d+,(?P<rank>\d{1,9})\](?:<std\w+>)?:"),
    re.compile(r"^(?:\S+ )?\[rank=(?P<rank>\d{1,9})\] \|\| ?"),
    re.compile(r"^\([^()]{0,200}?\brank=(?P<rank>\d{1,9})[^()]{0,200}\) ?"),
    re.compile(r"^\([^()]{0,200}?\bpid=(?P<pid>\d{1,9})[^()]{0,200}\) ?"),
    # Torch's own, where it is behind another one.
    re.compile(r"^\[rank(?P<rank>\d{1,9})\]: ?(?=\[rank\d+\]:)"),
    _LOCAL,
)
#: A task's number is a prefix only where all lines have one.
_LABEL = re.compile(r"^\s*(?P<rank>\d{1,9}): ")
#: Torch's names of a rank: before a line, or as a member of the default group.
_NAMED = re.compile(
    r"^\[[^\]]{0,100}rank(?P<rank>\d{1,9})\]:"
    r"|\[PG (?:ID )?0 [^\][]{0,200}\bRank (?P<member>\d{1,9})\]"
)
#: The same up to torch 2.1, of whichever group, as nothing else is in its line.
_NAMED_ONCE = re.compile(r"^(?:\[[EFWI] [^\]]*\] )?\[Rank (\d{1,9})\]")
#: NCCL's, of a communicator.
_OF_COMMUNICATOR = re.compile(r"NCCL INFO (?:\w+ )?comm \S+ rank (\d{1,9}) nranks (\d{1,9})\b")


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
    prefixes = (*PREFIXES, _LABEL) if labelled else PREFIXES
    return [_named(prefixes, line, numbers) for line in lines]


def without_colours(line: str) -> str:
    """A line without what colours it in a terminal."""
    return _COLOUR.sub("", line)


def _plain(line: str) -> str:
    return _TIME.sub("", without_colours(line))


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


def rank_named_in(line: str) -> int | None:
    """The rank whose name torch has put into a line; None without."""
    match = _NAMED.search(line)
    return None if match is None else int(match["rank"] or match["member"])


def _rank_of(line: str) -> int | None:
    """The rank that torch, of any release, names in a line."""
    rank = rank_named_in(line)
    if rank is None and (match := _NAMED_ONCE.match(line)) is not None:
        return int(match[1])
    return rank


def named_ranks(text: str) -> Counter[int]:
    """Number of lines of a log that bear the name of each rank, as torch or NCCL write it."""
    found: Counter[int] = Counter()
    communicators: list[tuple[int, int]] = []
    for line in text.splitlines():
        rank = _rank_of(line)
        if rank is not None:
            found[rank] += 1
        elif (match := _OF_COMMUNICATOR.search(line)) is not None:
            communicators.append((int(match[1]), int(match[2])))
    largest = max((size for _, size in communicators), default=0)
    found.update(rank for rank, size in communicators if size == largest)
    return found


def lines_of_ranks(text: str) -> dict[int | None, str]:
    """The lines of a log that several wrote by whose name they bear, None for those without."""
    found: dict[int | None, list[str]] = {}
    for line in text.splitlines():
        found.setdefault(_rank_of(line), []).append(line)
    return {rank: "\n".join(lines) for rank, lines in found.items()}
