"""The dumps of a Case or of a bare folder, for whoever wants to see them all."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from hanglab.analyzer.errors import InputError
from hanglab.analyzer.flight_recorder import DumpError, Loaded, load_many
from hanglab.analyzer.flight_recorder.loading import identity
from hanglab.analyzer.verdict import Unusable
from hanglab.analyzer.worlds.folder import read_worlds
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.case.reader import CaseReader, NotACase


def load_dumps(path: Path, *, ranks: Collection[int] | None = None) -> Loaded:
    """Dumps of the given ranks (default: all), with stacks where a Case has them.

    Of a folder with files of several jobs, or attempts, those of the largest one.

    Raises NotADirectoryError if ``path`` is no folder, InputError if it is a Case that cannot
    be read.
    """
    try:
        case = CaseReader(path)
    except NotACase as error:
        if (path / folders.HOSTS).is_dir():
            raise InputError(str(error), error.advice) from error
        return _largest_world(path, ranks)
    items: list[tuple[bytes, int | None, str]] = []
    for rank in case.ranks:
        if ranks is not None and rank.rank not in ranks:
            continue
        for file in (files.FLIGHT_RECORDER_STACKS, files.FLIGHT_RECORDER):
            data = rank.read(file)
            if data is not None:
                items.append((data, rank.rank, str(rank.folder / file.name)))
    loaded = Loaded()
    taken: set[int] = set()
    for (_, _, source), result in zip(items, load_many(items), strict=True):
        if isinstance(result, DumpError):
            loaded.unusable.append(Unusable(source, result.reason))
        elif result.rank not in taken:
            taken.add(result.rank)
            loaded.dumps.append(result)
    loaded.dumps.sort(key=lambda dump: dump.rank)
    return loaded


def _largest_world(path: Path, ranks: Collection[int] | None) -> Loaded:
    world = read_worlds(path, identity)[0]
    dumps = [dump for dump in world.mapped.results if ranks is None or dump.rank in ranks]
    return Loaded(dumps, [*world.mapped.unusable, *world.set_aside])
