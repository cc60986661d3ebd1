"""A snapshot of a rank outlasts what the rank writes later."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from hanglab.recorder.agent import snapshots
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders, layout
from hanglab.recorder.case.file_kinds import Scope
from hanglab.recorder.case.layout import Slot
from hanglab.recorder.case.reader import CaseReader, RankCase
from hanglab.recorder.rank.progress_file import ProgressFile


@pytest.fixture
def rank(tmp_path: Path) -> RankCase:
    folders.make_private(folders.rank_folder(tmp_path, "host", 0))
    return CaseReader(tmp_path).ranks[0]


def write(rank: RankCase, name: str, data: bytes) -> None:
    folders.write_whole(rank.folder / name, data)


def test_progress_at_the_capture_is_kept(rank: RankCase) -> None:
    progress = ProgressFile(rank.folder / files.PROGRESS.name)
    progress.identify(0, 0, 1)
    progress.step(7)
    snapshots.keep_mapped(rank.folder)
    progress.step(8)
    assert rank.read(files.PROGRESS) is not None and rank.read(files.PROGRESS).step == 8
    assert (
        rank.as_captured.read(files.PROGRESS) is not None
        and rank.as_captured.read(files.PROGRESS).step == 7
    )


def test_a_rank_that_leaves_meanwhile_does_not_take_it_along(rank: RankCase) -> None:
    progress = ProgressFile(rank.folder / files.PROGRESS.name)
    progress.identify(0, 0, 1)
    snapshots.keep_mapped(rank.folder)
    progress.step(8)
    snapshots.keep_mapped(rank.folder)
    progress.slots[Slot.PHASE] = layout.EXITING
    progress.step(9)
    snapshots.keep_mapped(rank.folder)
    then = rank.as_captured.read(files.PROGRESS)
    assert then is not None and (then.phase, then.step) == ("running", 8)


def test_a_rank_without_progress_has_nothing_to_be_kept(rank: RankCase) -> None:
    snapshots.keep_mapped(rank.folder)
    snapshots.keep_documents(rank.folder)
    assert list(rank.folder.iterdir()) == []


def test_documents_are_kept_where_the_rank_replaces_them(rank: RankCase) -> None:
    for name in (files.FLIGHT_RECORDER.name, files.FLIGHT_RECORDER_STACKS.name, files.WAITS.name):
        write(rank, name, b"[]")
    snapshots.keep_documents(rank.folder)
    write(rank, files.FLIGHT_RECORDER.name, b"later")
    snapshots.drop_unchanged(rank.folder)
    assert rank.as_captured.read(files.FLIGHT_RECORDER) == b"[]"
    assert rank.as_captured.read(files.FLIGHT_RECORDER_STACKS) == b"[]"
    assert rank.read(files.FLIGHT_RECORDER) == b"later"
    names = {path.name for path in rank.folder.iterdir()}
    assert names == {
        files.FLIGHT_RECORDER.name,
        files.FLIGHT_RECORDER.snapshot_name,
        files.FLIGHT_RECORDER_STACKS.name,
        files.WAITS.name,
    }


def test_a_later_capture_replaces_what_was_kept(rank: RankCase) -> None:
    for data in (b"first", b"second"):
        write(rank, files.FLIGHT_RECORDER.name, data)
        snapshots.keep_documents(rank.folder)
    write(rank, files.FLIGHT_RECORDER.name, b"later")
    assert rank.as_captured.read(files.FLIGHT_RECORDER) == b"second"
    snapshots.forget(rank.folder)
    assert rank.as_captured.read(files.FLIGHT_RECORDER) == b"later"


def test_what_a_host_was_asked_at_a_capture_goes_with_it(tmp_path: Path) -> None:
    for file in (files.NCCL_RAS, files.SAMPLES):
        (tmp_path / file.name).write_bytes(b"{}")
    snapshots.forget(tmp_path, Scope.HOST)
    assert [path.name for path in tmp_path.iterdir()] == [files.SAMPLES.name]


@pytest.fixture
def no_second_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system without hard links."""

    def link(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)


@contextlib.contextmanager
def little_room() -> Iterator[None]:
    """No file can become larger than eight bytes, that of pytest's output neither."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("no_second_names")
def test_without_second_names_copies_are_kept_as_long_as_they_differ(rank: RankCase) -> None:
    for name in (files.FLIGHT_RECORDER.name, files.WAITS.name):
        write(rank, name, b"[]")
    snapshots.keep_documents(rank.folder)
    write(rank, files.FLIGHT_RECORDER.name, b"later")
    snapshots.drop_unchanged(rank.folder)
    assert rank.as_captured.read(files.FLIGHT_RECORDER) == b"[]"
    assert not (rank.folder / files.WAITS.snapshot_name).exists()
    assert (rank.folder / files.FLIGHT_RECORDER.snapshot_name).stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("no_second_names")
def test_half_a_copy_is_none(rank: RankCase) -> None:
    write(rank, files.FLIGHT_RECORDER.name, bytes(100))
    with pytest.raises(OSError, match="File too large"), little_room():
        snapshots.keep_documents(rank.folder)
    assert [path.name for path in rank.folder.iterdir()] == [files.FLIGHT_RECORDER.name]
