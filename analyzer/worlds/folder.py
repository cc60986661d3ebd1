"""Reads a folder world by world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import commonprefix
from typing import Generic, TypeVar

from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.flight_recorder.discovery import name_without_rank
from hanglab.analyzer.flight_recorder.loading import MAX_UNUSABLE, Mapped, map_worlds
from hanglab.analyzer.verdict import Unusable
from hanglab.analyzer.worlds.grouping import Claims, World, group_files

T = TypeVar("T")


@dataclass
class FolderWorld(Generic[T]):
    """The dumps of one attempt of one job, and what else lies in the folder."""

    mapped: Mapped[T]
    #: Names of its files with ``#`` for the rank; "" where the folder holds nothing else.
    name: str = ""
    set_aside: list[Unusable] = field(default_factory=list)
    #: A later attempt of its job lies beside it.
    restarted: bool = False


def read_worlds(
    path: Path,
    function: Callable[[RankDump], T],
    *,
    workers: int | None = None,
    keep: bool = False,
) -> list[FolderWorld[T]]:
    """The worlds in a folder, at least one, the largest first, behind them earlier attempts.

    ``function`` is applied to each rank's dump where it is loaded, see
    :func:`hanglab.analyzer.flight_recorder.map_folder`.  With ``keep`` a cluster keeps what it
    made.  Raises NotADirectoryError.
    """
    found: list[World] = []

    def separate(claims: Claims) -> Sequence[Sequence[int]]:
        found[:] = group_files(claims)
        return [world.files for world in found]

    parts = map_worlds(path, function, separate, workers=workers, keep=keep)
    if len(parts) == 1:
        return [FolderWorld(parts[0])]
    names = [_name(part.files) for part in parts]
    worlds = [
        FolderWorld(
            parts[index],
            names[index],
            _set_aside(found, parts, names, index),
            world.restarted_as is not None,
        )
        for index, world in enumerate(found)
    ]
    return sorted(worlds, key=lambda world: world.restarted)


def _name(files: Sequence[str]) -> str:
    names = sorted({name_without_rank(file) for file in files})
    return names[0] if len(names) == 1 else f"{commonprefix(names)}..."


def _set_aside(
    worlds: Sequence[World], parts: Sequence[Mapped[T]], names: Sequence[str], judged: int
) -> list[Unusable]:
    """The files of all other worlds, each with the reason."""
    found = []
    for index, part in enumerate(parts):
        if index == judged:
            continue
        later = worlds[index].restarted_as
        why = "of another job, or another moment, than the files that are judged"
        if worlds[judged].restarted_as == index:
            why = f"of a later attempt, which began after the last operation of {names[judged]}"
        elif later is not None:
            why = f"of an earlier attempt: {names[later]} began after its last operation"
        found += [Unusable(file, why) for file in part.files]
    if len(found) > MAX_UNUSABLE:
        found[MAX_UNUSABLE:] = [Unusable("", f"and {len(found) - MAX_UNUSABLE} more files")]
    return found
