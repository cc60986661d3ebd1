"""A Case sent to a store: file by file, each compared with what has arrived, the manifest last.

Where an upload ended in the middle the place has no manifest, and the next one sends what lacks.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hanglab.harness.errors import UsageError
from hanglab.harness.storage.errors import StorageError
from hanglab.harness.storage.locations import StoredPlace, asked, place_of
from hanglab.harness.storage.transfers import BLOCK, again, side_by_side
from hanglab.recorder.case.folders import MANIFEST
from hanglab.recorder.case.integrity import regular_files

Told = Callable[[int, int], None]


@dataclass(frozen=True)
class UploadedCase:
    """A Case that has arrived: ``sent`` of its ``files`` now, the others before."""

    url: str
    files: int
    sent: int
    size: int


def upload(case: Path, url: str, told: Told = lambda *_: None) -> UploadedCase:
    """Sends all files of a folder.

    Raises StorageError where a file does not arrive whole (what lies here stays as it is, and the
    same call goes on), and UsageError where another Case lies there already.
    """
    names = regular_files(case)
    if not names:
        raise UsageError(f"{case} has no files to upload.", "Give the folder of a Case.")
    place = place_of(url)
    try:
        there = asked(place, lambda: again(lambda: _there(place)))
    except StorageError as error:
        raise _kept(case, url, f"Nothing got to {url}", error) from error
    broken_off = _broken_off(place, case, set(names), there)
    lacking = [name for name in names if name not in there or name in broken_off]
    arrived = len(names) - len(lacking)

    def one(name: str) -> None:
        nonlocal arrived
        asked(place, lambda: again(lambda: _send(place, case / name, name)))
        arrived += 1
        told(arrived, len(names))

    try:
        side_by_side(one, [name for name in lacking if name != MANIFEST])
        side_by_side(one, [name for name in lacking if name == MANIFEST])
    except StorageError as error:
        what = f"{len(names) - arrived} of {len(names)} files did not get to {url}"
        raise _kept(case, url, what, error) from error
    size = sum((case / name).stat().st_size for name in names)
    return UploadedCase(url, len(names), len(lacking), size)


def _kept(case: Path, url: str, what: str, error: StorageError) -> StorageError:
    return StorageError(
        f"{what}: {error}",
        f"Nothing is lost: `hanglab upload {case} {url}` goes on. {error.advice}",
    )


def _there(place: StoredPlace) -> dict[str, dict[str, Any]]:
    """Files of the place by their path below it."""
    place.files.invalidate_cache()
    found: dict[str, dict[str, Any]] = place.files.find(place.path, detail=True)
    root = place.path.strip("/")
    return {path.strip("/")[len(root) :].strip("/"): info for path, info in found.items()}


def _broken_off(
    place: StoredPlace, case: Path, names: set[str], there: dict[str, dict[str, Any]]
) -> set[str]:
    """Files whose upload ended in the middle; raises UsageError for anything else that differs.

    With the manifest, which comes last, its Case is whole, and stays as it is.
    """
    foreign = set(there) - names
    beginnings: set[str] = set()
    for name in names & set(there):
        if not _same(place, case / name, name, there[name]):
            partly = MANIFEST not in there and _begins(place, case / name, name)
            (beginnings if partly else foreign).add(name)
    if foreign:
        raise UsageError(
            f"{place.url} holds something else already ({min(foreign) or 'a file'}), and nothing "
            "is overwritten.",
            "Name another place, such as one that ends in the name of the Case.",
        )
    return beginnings


def _send(place: StoredPlace, local: Path, name: str) -> None:
    target = place / name
    with local.open("rb") as source, place.files.open(target, "wb") as copy:
        while block := source.read(BLOCK):
            copy.write(block)
    place.files.invalidate_cache()
    with contextlib.suppress(FileNotFoundError):
        if _same(place, local, name, place.files.info(target)):
            return
    raise ConnectionError(f"{name} did not arrive as it was sent")


def _same(place: StoredPlace, local: Path, name: str, info: dict[str, Any]) -> bool:
    """True if the stored file has this content: by size and MD5, or read back without that."""
    if info.get("size") != local.stat().st_size:
        return False
    tag = str(info.get("ETag", "")).strip('"')
    if len(tag) != 32:  # of an upload in parts it is no checksum of the file
        return _begins(place, local, name)
    digest = hashlib.md5(usedforsecurity=False)
    with local.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest() == tag


def _begins(place: StoredPlace, local: Path, name: str) -> bool:
    """True if the stored file is the beginning of this one, or all of it."""
    with place.files.open(place / name, "rb") as stored, local.open("rb") as file:
        while block := stored.read(BLOCK):
            if file.read(len(block)) != block:
                return False
    return True
