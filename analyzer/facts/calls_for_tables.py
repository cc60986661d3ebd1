"""Calls of all ranks for tables: a Case's buffers with what the recorder saw besides.

A buffer of gloo has no send or receive, and names some operations by what gloo makes of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from hanglab.analyzer.facts.boundary import called_as, join
from hanglab.analyzer.flight_recorder import Loaded
from hanglab.analyzer.flight_recorder.columns import ABSENT, Entries, RankDump
from hanglab.analyzer.tables.sources import load_dumps
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.progress_records import Progress
from hanglab.recorder.case.reader import CaseReader, NotACase

#: A collective: name of its group, and its number there.
_Number = tuple[str, int]


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
    _name_as_called(joined, progress)
    loaded.dumps = joined
    return loaded


def _name_as_called(dumps: Collection[RankDump], progress: dict[int, Progress]) -> None:
    """Give operations the names that they were called by, on all ranks alike."""
    names: dict[_Number, set[str]] = {}
    for dump in dumps:
        if dump.entries is not None and dump.rank in progress:
            for number, name in _numbered(dump.entries, progress[dump.rank]):
                names.setdefault(number, set()).add(name)
    agreed = {number: found.pop() for number, found in names.items() if len(found) == 1}
    for dump in dumps:
        if dump.entries is not None:
            dump.entries = _renamed(dump.entries, agreed)


def _numbered(entries: Entries, progress: Progress) -> Iterator[tuple[_Number, str]]:
    for row, name in called_as(entries, progress):
        if entries.seq[row] != ABSENT:
            yield (entries.group_names[entries.group[row]].name, int(entries.seq[row])), name


def _renamed(entries: Entries, names: dict[_Number, str]) -> Entries:
    operation, operations = entries.operation.copy(), list(entries.operations)
    places = {one: place for place, one in enumerate(operations)}
    for row, seq in enumerate(entries.seq.tolist()):
        name = names.get((entries.group_names[entries.group[row]].name, seq))
        made = entries.operation_at(row)
        if name is None or entries.is_p2p[row] or made.op == name:
            continue
        called = replace(made, op=name)
        operation[row] = places.setdefault(called, len(operations))
        if operation[row] == len(operations):
            operations.append(called)
    return replace(entries, operation=operation, operations=operations)
