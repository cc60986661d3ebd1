"""Arguments that name a Case or a folder of dumps: a path, or a URL, which is fetched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from hanglab.harness.storage.fetching import StoredFile

_FETCHED = ExitStack()
#: What other machines cannot read, or not as this one does.
_OF_THIS_MACHINE = ("file://", "memory://", "zip://")


def source_path(text: str) -> Path:
    """The path; of a URL that of a copy, which :func:`close_sources` removes."""
    if "://" not in text:
        return Path(text)
    from hanglab.harness.storage.locations import is_url

    if not is_url(text):
        return Path(text)
    from hanglab.harness.report.transfer_progress import transfer_progress
    from hanglab.harness.storage.fetching import fetched

    with transfer_progress(f"files of {text} fetched") as told:
        return _FETCHED.enter_context(fetched(text, told))


@contextmanager
def dumps_on(cluster: str, text: str) -> Iterator[Path]:
    """The path, or one that stands for a URL, while all dumps are read on a cluster.

    Workers fetch the dumps of a store, if they can reach it; a Case is fetched here.
    """
    from hanglab.harness.cluster.connection import fetching_on, reading_on
    from hanglab.harness.cluster.stored_dumps import StoredDumps, names_of_dumps
    from hanglab.harness.storage.fetching import stored_files
    from hanglab.harness.storage.locations import is_url, place_of

    if is_url(text) and not text.startswith(_OF_THIS_MACHINE):
        place = place_of(text)
        files = stored_files(place)
        if not _are_of_a_case(files):
            with (
                names_of_dumps(place, files) as path,
                fetching_on(cluster, StoredDumps(text)),
            ):
                yield path
            return
    path = source_path(text)
    with reading_on(cluster, path, lambda words: typer.echo(f"hanglab: {words}", err=True)):
        yield path


def _are_of_a_case(files: list[StoredFile]) -> bool:
    """A Case, the folder of a run, or a single file, which `analyze` takes otherwise or refuses."""
    return any(
        not file.name or file.name.endswith("manifest.json") or "hosts/" in file.name
        for file in files
    )


def close_sources() -> None:
    """Removes the copies of what was fetched."""
    _FETCHED.close()
