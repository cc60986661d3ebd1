"""Dumps in a store, which workers fetch themselves; here are files of their names alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hanglab.analyzer.flight_recorder.dump_input import MAX_FILE, DumpInput
from hanglab.analyzer.flight_recorder.formats import HEAD
from hanglab.harness.storage import origins
from hanglab.harness.storage.fetching import StoredFile
from hanglab.harness.storage.locations import StoredPlace, asked, place_of
from hanglab.harness.storage.transfers import SIDE_BY_SIDE, again


@dataclass(frozen=True)
class StoredDumps:
    """Reads a batch from the folder at ``url``; runs in a worker, with the worker's credentials."""

    url: str

    def __call__(self, files: Sequence[DumpInput]) -> list[DumpInput]:
        """The files with their bytes; raises StorageError."""
        place = place_of(self.url)
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            return list(pool.map(lambda file: _with_bytes(place, file), files))


def _with_bytes(place: StoredPlace, file: DumpInput) -> DumpInput:
    if file.path is None:
        return file
    # Of what is larger than any dump its beginning tells what it is.
    wanted = HEAD if file.size > MAX_FILE else file.size
    data = asked(place, lambda: again(lambda: _bytes(place, file.name, wanted)))
    return replace(file, path=None, data=data)


def _bytes(place: StoredPlace, name: str, size: int) -> bytes:
    with place.files.open(place / name, "rb") as source:
        data: bytes = source.read(size)
    if len(data) != size:
        raise ConnectionError(f"{name} ended after {len(data)} of {size} bytes")
    return data


@contextmanager
def names_of_dumps(place: StoredPlace, files: Sequence[StoredFile]) -> Iterator[Path]:
    """A folder of files with the names, sizes and times of those in the store, without content."""
    with TemporaryDirectory(prefix="hanglab-fetched-") as base:
        folder = Path(base) / place.name
        folder.mkdir()
        for file in files:
            path = folder / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            os.truncate(path, file.size or 0)
            if file.modified_ns is not None:
                os.utime(path, ns=(file.modified_ns, file.modified_ns))
        with origins.remembered(folder, place.url):
            yield folder
