"""Packing, unpacking and redacting Cases for the command line: errors that say what to do."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from hanglab.harness.errors import HanglabError, UsageError
from hanglab.recorder.archive.packing import UnsafeArchive
from hanglab.recorder.archive.packing import pack as write_archive
from hanglab.recorder.archive.packing import unpack as read_archive
from hanglab.recorder.case import folders
from hanglab.recorder.case.integrity import differences
from hanglab.recorder.case.reader import CaseReader

if TYPE_CHECKING:
    from hanglab.analyzer.verdict import Verdict

SUFFIX = ".case.tar.gz"


class CaseError(HanglabError):
    """The Case cannot be read or is not what its recorder left."""

    advice = "Give the folder that `hanglab record` or `hanglab run` wrote."


class ArchiveError(HanglabError):
    """The archive cannot be unpacked."""

    advice = "Have it packed again with `hanglab pack`, and compare the sizes after the transfer."


def open_case(path: Path, damaged: bool = False) -> CaseReader:
    """The Case at ``path``, compared with its manifest unless ``damaged``.

    Raises NotACase, or CaseError where it is not as it was recorded.
    """
    inner = path / "case"
    if not (path / "hosts").is_dir() and (inner / "hosts").is_dir():
        path = inner
    reader = CaseReader(path)
    wrong = [] if damaged else [*_unusable_manifest(reader), *differences(reader)]
    if wrong:
        listed = "; ".join(f"{name} {reason}" for name, reason in wrong[:3])
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise CaseError(
            f"{path} is not as its recorder left it: {listed}{more}.",
            "Copy it again from where it was recorded, or take it as it is with --damaged.",
        )
    return reader


def _unusable_manifest(reader: CaseReader) -> list[tuple[str, str]]:
    """A manifest that is there and cannot be read hides what else has been altered.

    Where there is none, the recorder was ended before it could write it.
    """
    there = reader.manifest is None and os.path.lexists(reader.path / folders.MANIFEST)
    return [(folders.MANIFEST, "cannot be read")] if there else []


def pack(case: Path, target: Path | None, damaged: bool) -> tuple[Path, int]:
    """Writes the archive; gives its path and size.  Raises CaseError, UsageError."""
    reader = open_case(case, damaged)
    name = reader.path.resolve()
    name = name.parent if name.name == "case" else name
    path = target if target is not None else Path(f"{name.name}{SUFFIX}")
    with _writing(path):
        _must_be_free(path)
        return path, write_archive(reader.path, path)


def unpack(source: Path, target: Path | None, damaged: bool) -> tuple[Path, int]:
    """Unpacks an archive; gives the folder and the number of files.

    Raises ArchiveError, CaseError, UsageError.
    """
    if not source.is_file():
        raise UsageError(f"{source} is no file.", "Give a file that `hanglab pack` wrote.")
    name = source.name.removesuffix(SUFFIX)
    path = target if target is not None else Path(name if name != source.name else f"{name}.case")
    with _writing(path):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
        _must_be_free(path)
        try:
            count = read_archive(source, path)
        except UnsafeArchive as error:
            raise ArchiveError(f"{source} is not unpacked: {error}.") from error
    try:
        open_case(path, damaged)
    except HanglabError:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return path, count


def redact(case: Path, target: Path, damaged: bool) -> tuple[list[str], list[str]]:
    """Writes the redacted copy; says what was left out, and in what its verdict differs.

    Raises CaseError, UsageError.
    """
    from hanglab.analyzer.engine import analyze
    from hanglab.recorder.archive.redaction import redact as write_copy

    reader = open_case(case, damaged)
    with _writing(target):
        if target.is_dir() and not any(target.iterdir()):
            target.rmdir()
        _must_be_free(target)
        try:
            left_out = write_copy(reader, target)
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise
    return left_out, compare(analyze(reader.path), analyze(target))


def compare(before: Verdict, after: Verdict) -> list[str]:
    """Differences of two verdicts, apart from names."""
    found = []
    for what, then, now in (
        ("status", before.status, after.status),
        ("cause", before.cause, after.cause),
        ("culprits", sorted(before.culprits), sorted(after.culprits)),
        ("victims", sorted(before.victims), sorted(after.victims)),
        ("operation", _operation(before), _operation(after)),
        ("line", _line(before), _line(after)),
        (
            "further findings",
            [(f.cause, sorted(f.culprits)) for f in before.findings],
            [(f.cause, sorted(f.culprits)) for f in after.findings],
        ),
    ):
        if then != now:
            found.append(f"{what}: {_word(then)} before, {_word(now)} now")
    return found


def _operation(verdict: Verdict) -> object:
    call = verdict.collective
    return (call.op, call.seq, call.ranks) if call is not None else None


def _line(verdict: Verdict) -> object:
    place = verdict.location
    return (place.line, place.rank) if place is not None else None


def _word(value: object) -> str:
    return str(getattr(value, "value", value))


def _must_be_free(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise UsageError(
            f"{path} exists already, and nothing is overwritten.", "Name another with -o."
        )


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        with _ending_in_order():
            yield
    except FileExistsError as error:
        raise UsageError(
            f"{path} exists already, and nothing is overwritten.", "Name another with -o."
        ) from error
    except OSError as error:
        if isinstance(error, HanglabError):
            raise
        advice = "Name a place that you may write to, with space left on its disk."
        if error.errno == errno.ENAMETOOLONG:
            advice = "Name a shorter one; or a file in it has a name that no disk here can hold."
        raise HanglabError(
            f"{path} cannot be written: {error.strerror or error}.", advice
        ) from error


@contextlib.contextmanager
def _ending_in_order() -> Iterator[None]:
    """Whoever is told to end meanwhile removes what it has written halfway."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
