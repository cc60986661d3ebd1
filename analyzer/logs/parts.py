"""A log that several wrote, part by part: one for each name that launchers put before lines.

Prefixes of launchers say whose a line is.  A label that nearly all lines have (the task of ``srun
--label``, the host of pdsh, pod and container of stern) only parts them: what wrote under it the
lines themselves tell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hanglab.analyzer.logs.files import LogFile
from hanglab.analyzer.logs.rank_prefixes import PREFIXES, without_colours

#: What collects the lines of a container puts a time in its zone before them.
_ZONED_TIME = re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) ?")
_LABELS = (
    re.compile(r"^\s*(\d{1,6}): ?"),
    re.compile(r"^([\w.-]+): ?"),
    re.compile(r"^([\w.-]+ [\w.-]+) "),
)
#: Share of lines that have a label where it is one, and lines for each of them.
_LABELLED = 0.95
_LINES_OF_LABEL = 4
_MOST_LABELS = 4096
_DEPTH = 3


def parts(file: LogFile, depth: int = _DEPTH) -> Iterator[LogFile]:
    """The parts of a log, each with the rank that its prefix tells; the whole where it has none."""
    lines = [without_colours(line) for line in file.text.splitlines()]
    lines = _without(lines, _ZONED_TIME)
    divided = (_by_prefix(file, lines) or _by_label(file, lines)) if depth else None
    if divided is None:
        yield replace(file, text="\n".join(lines))
        return
    for part in divided:
        yield from parts(part, depth - 1)


def run_of(file: LogFile) -> str:
    """The launcher whose prefixes the lines of a log, or of a part of one, have."""
    return f"{file.name}/{file.part}"


def _without(lines: list[str], prefix: re.Pattern[str]) -> list[str]:
    told = sum(bool(line.strip()) for line in lines)
    having = sum(prefix.match(line) is not None for line in lines)
    return [prefix.sub("", line) for line in lines] if having > _LABELLED * told else lines


def _by_prefix(file: LogFile, lines: Sequence[str]) -> list[LogFile] | None:
    """One part for each rank or process that prefixes name, and one of the lines without."""
    found: dict[tuple[str, int], list[str]] = {}
    rest: list[str] = []
    for line in lines:
        for prefix in PREFIXES if line[:1] in "[(" else ():
            match = prefix.match(line)
            if match is not None:
                ((kind, number),) = [(k, int(v)) for k, v in match.groupdict().items() if v]
                found.setdefault((kind, number), []).append(line[match.end() :])
                break
        else:
            rest.append(line)
    if not found:
        return None
    divided = [replace(file, text="\n".join(rest))] if any(map(str.strip, rest)) else []
    for (kind, number), theirs in found.items():
        name = f"{file.part} {kind} {number}".strip()
        part = replace(file, part=name, text="\n".join(theirs))
        if kind == "rank":
            part = replace(part, rank=number)
        elif kind == "local":
            part = replace(part, local_rank=number, run=run_of(file))
        divided.append(part)
    return divided


def _by_label(file: LogFile, lines: Sequence[str]) -> list[LogFile] | None:
    """One part for each label that nearly all lines have, and one of the lines without."""
    told = [line for line in lines if line.strip()]
    for label in _LABELS:
        matches = [label.match(line) for line in told]
        times = Counter(match[1] for match in matches if match is not None)
        often = {name for name, count in times.items() if count >= _LINES_OF_LABEL}
        labelled = sum(times[name] for name in often)
        if not 2 <= len(often) <= _MOST_LABELS or labelled < _LABELLED * len(told):
            continue
        found: dict[str, list[str]] = {}
        for match, line in zip(matches, told, strict=True):
            known = match is not None and match[1] in often
            name, rest = (match[1], line[match.end() :]) if match and known else ("", line)
            found.setdefault(name, []).append(rest)
        return [
            replace(file, part=f"{file.part} {name}".strip(), text="\n".join(theirs))
            for name, theirs in found.items()
        ]
    return None
