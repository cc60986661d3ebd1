"""Calls of all ranks for tables: a Case's buffers with what the recorder saw besides.

A buffer of gloo has no send or receive, and names some operations by what gloo makes of them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from hanglab.analyzer.facts.boundary import called_as, join
from hanglab.analyzer.flight_recorder import Loaded
from hanglab.analyzer.flight_recorder.columns import ABSENT, Entries, RankDump
from hanglab.analyzer.tables.sources import load_dumps
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.progress_records import Progress
from hanglab.recorder.case.reader import CaseReader, NotACase

#: A collective as a buffer has it: name of its group, its number there, and what gloo made of it.
_Made = tuple[str, int, str]


def load_calls(path: Path, *, ranks: Collection[int] | None = None) -> Loaded:
    """Dumps as :func:`load_dumps` gives them, those of a Case joined with its boundary's records.

    Raises what that raises.
    """
    loaded = load_dumps(path, ranks=ranks)
    try:
        case = CaseReader(path)
    except NotACase:
        return loaded
    dumps = {dump.rank: dump for dump in loaded.dumps}
    progress: dict[int, Progress] = {}
    joined: list[RankDump] = []
    for rank in case.ranks:
        if ranks is not None and rank.rank not in ranks:
            continue
        mine = rank.as_captured
        seen = mine.read(files.PROGRESS)
        if seen is not None:
            progress[rank.rank] = seen
        one = join(rank.rank, dumps.get(rank.rank), seen, mine.read(files.GROUPS), str(rank.folder))
        if one is not None:
            joined.append(one)
    name_as_called(joined, progress)
    loaded.dumps = joined
    return loaded


def name_as_called(dumps: Collection[RankDump], progress: dict[int, Progress]) -> None:
    """Give operations the names that they were called by, on all ranks that made the same of them.

    Where a rank has another operation under a number, its peers' name is none of its.
    """
    names: dict[_Made, set[str]] = {}
    for dump in dumps:
        if dump.entries is not None and dump.rank in progress:
            for row, name in called_as(dump.entries, progress[dump.rank]):
                names.setdefault(_made(dump.entries, row), set()).add(name)
    agreed = {made: found.pop() for made, found in names.items() if len(found) == 1}
    for dump in dumps:
        if dump.entries is not None:
            dump.entries = _renamed(dump.entries, agreed)


def _made(entries: Entries, row: int) -> _Made:
    group = entries.group_names[entries.group[row]].name
    return group, int(entries.seq[row]), entries.operation_at(row).op


def _renamed(entries: Entries, names: dict[_Made, str]) -> Entries:
    operation, operations = entries.operation.copy(), list(entries.operations)
    places = {one: place for place, one in enumerate(operations)}
    for row in range(len(entries)):
        name = names.get(_made(entries, row))
        if name is None or entries.is_p2p[row] or entries.seq[row] == ABSENT:
            continue
        called = replace(entries.operation_at(row), op=name)
        operation[row] = places.setdefault(called, len(operations))
        if operation[row] == len(operations):
            operations.append(called)
    return replace(entries, operation=operation, operations=operations)
