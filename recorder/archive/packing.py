"""A Case as one file: a gzipped tar of its files and nothing else.

An archive may come from a stranger.  Unpacking creates folders and regular
files below the target only, whatever names, links, devices or sizes the archive
holds, and stops at limits that no real Case comes near.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import stat
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from hanglab.recorder.case import folders
from hanglab.recorder.case.integrity import regular_files
from hanglab.recorder.errors import HanglabError

#: Everything lies below this folder in the archive.
ROOT = "case"
#: Limits of what is unpacked.
MOST_FILES = 2_000_000
MOST_BYTES = 256 << 30
#: Bytes unpacked may be this many times the archive's own, and so many besides: the
#: progress files of idle ranks are a megabyte of zeros each.
MOST_RATIO = 400
RATIO_FROM = 256 << 20
_LONGEST = 1024
_DEEPEST = 16
_LONGEST_HEADER = 1 << 16
#: Headers that a member may have besides its own, for a long name.
_MOST_HEADERS = 4
#: What reading a damaged archive ends with.
_DAMAGED = (
    tarfile.TarError,
    zlib.error,
    gzip.BadGzipFile,
    EOFError,
    ValueError,
    OverflowError,
)
_BLOCK = 1 << 20


class UnsafeArchive(HanglabError, ValueError):
    """The archive is damaged, no Case, or would do harm; its text says which member and why."""

    advice = "Ask whoever made the archive for another one."


def pack(case: Path, target: Path) -> int:
    """Write ``target``, which must not exist; returns its size.  Raises OSError.

    Only regular files are packed; owner, group and times are left out, so that
    equal Cases make equal archives.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    fd = folders.open_private(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        with (
            os.fdopen(fd, "wb") as raw,
            gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for relative in regular_files(case):
                _add(archive, case, relative)
        # A rename alone would overwrite what somebody put there meanwhile.
        os.close(folders.open_private(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except BaseException:
        os.unlink(temporary)
        raise
    os.rename(temporary, target)
    return target.stat().st_size


def _add(archive: tarfile.TarFile, case: Path, relative: str) -> None:
    source = os.open(case / relative, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(source, "rb") as file:
        member = tarfile.TarInfo(f"{ROOT}/{relative}")
        member.size = os.fstat(file.fileno()).st_size
        member.mode = 0o600
        archive.addfile(member, file)


def unpack(source: Path, target: Path) -> int:
    """Unpack into ``target``, a folder that does not exist yet; returns the number of files.

    Raises UnsafeArchive, OSError; then nothing is left at ``target``.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        # Within: a signal may end the process as soon as it is there.
        os.mkdir(temporary, 0o700)
        count = _extract_all(source, temporary)
        os.mkdir(target, 0o700)
        # Onto an empty folder: whatever came there meanwhile is not overwritten.
        os.rename(temporary, target)
        return count
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rmdir(target)
        raise


def _extract_all(source: Path, folder: Path) -> int:
    left = _Allowance(source.stat().st_size)
    try:
        with gzip.open(source) as packed, _open_bounded(_Counted(packed, left)) as archive:
            for member in archive:
                # tarfile would keep all of them, with their headers.
                archive.members.clear()  # type: ignore[attr-defined]
                left.take_member(member)
                path = _safe_path(member)
                if path is None:
                    continue
                if not member.isreg() or member.issparse():
                    raise UnsafeArchive(f"{_shown(member)} is {_kind(member)}, not a file")
                _write(archive, member, folder / path)
                left.files += 1
            # To the end, where the checksum stands.
            while rest := packed.read(_BLOCK):
                left.take_bytes(len(rest))
    except UnsafeArchive:
        raise
    except _DAMAGED as error:
        raise UnsafeArchive(f"the archive is damaged or none: {error}") from error
    if not left.files:
        raise UnsafeArchive("the archive is empty")
    return left.files


class _BoundedInfo(tarfile.TarInfo):
    """Headers that tarfile reads whole, with limits on their size and number."""

    def _proc_pax(self, archive: _BoundedArchive) -> tarfile.TarInfo:
        if self.type == tarfile.XGLTYPE:
            # tarfile keeps what they say for all members that follow.
            raise UnsafeArchive("the archive has a header for all of its files; a Case has none")
        with self._header(archive):
            return super()._proc_pax(archive)  # type: ignore[misc, no-any-return]

    def _proc_gnulong(self, archive: _BoundedArchive) -> tarfile.TarInfo:
        with self._header(archive):
            return super()._proc_gnulong(archive)  # type: ignore[misc, no-any-return]

    def _proc_sparse(self, *given: object) -> tarfile.TarInfo:
        """Refuse every kind: the lists of holes are read before anybody sees the member."""
        raise UnsafeArchive("the archive holds a sparse file, and a Case has none")

    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _proc_sparse

    @contextlib.contextmanager
    def _header(self, archive: _BoundedArchive) -> Iterator[None]:
        if not 0 <= self.size <= _LONGEST_HEADER:
            raise UnsafeArchive(f"the archive has a header of {self.size} bytes")
        archive.headers += 1
        if archive.headers > _MOST_HEADERS:
            raise UnsafeArchive(f"a member of the archive has more than {_MOST_HEADERS} headers")
        try:
            yield
        finally:
            archive.headers -= 1


class _BoundedArchive(tarfile.TarFile):
    tarinfo = _BoundedInfo
    #: Headers of one member that are being read, each within the one before.
    headers = 0


def _open_bounded(file: _Counted) -> _BoundedArchive:
    archive: _BoundedArchive = _BoundedArchive.open(  # type: ignore[call-overload]
        fileobj=file, mode="r|"
    )
    return archive


class _Counted:
    """File that tarfile reads from; every byte counts, whether of a file or of a header."""

    def __init__(self, file: gzip.GzipFile, left: _Allowance) -> None:
        self._file = file
        self._left = left

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._left.take_bytes(len(data))
        return data


class _Allowance:
    """Members and bytes that may still be unpacked."""

    def __init__(self, packed: int) -> None:
        self.files = 0
        self._members = 0
        self._bytes = min(MOST_BYTES, max(RATIO_FROM, packed * MOST_RATIO))

    def take_member(self, member: tarfile.TarInfo) -> None:
        self._members += 1
        if self._members > MOST_FILES:
            raise UnsafeArchive(f"the archive holds more than {MOST_FILES} members")
        if member.size < 0:
            raise UnsafeArchive(f"{_shown(member)} has a negative size")

    def take_bytes(self, count: int) -> None:
        self._bytes -= count
        if self._bytes < 0:
            raise UnsafeArchive("the archive unpacks to far more than it holds")


def _safe_path(member: tarfile.TarInfo) -> PurePosixPath | None:
    """Place of the member below the target; None for the folders that lead there."""
    name = member.name
    if len(name) > _LONGEST or "\0" in name or "\\" in name:
        raise UnsafeArchive(f"{_shown(member)} is no name for a file of a Case")
    path = PurePosixPath(name)
    parts = path.parts
    if path.is_absolute() or ".." in parts or len(parts) > _DEEPEST:
        raise UnsafeArchive(f"{_shown(member)} leads out of the Case")
    if not parts or parts[0] != ROOT:
        raise UnsafeArchive(f"{_shown(member)} is not part of a Case that hanglab packed")
    if any(part.startswith(".") for part in parts):
        raise UnsafeArchive(f"{_shown(member)} is hidden, and no Case has hidden files")
    if member.isdir():
        return None
    if len(parts) == 1:
        raise UnsafeArchive(f"{_shown(member)} is not a folder")
    return PurePosixPath(*parts[1:])


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    content = archive.extractfile(member)
    if content is None:
        raise UnsafeArchive(f"{_shown(member)} has no content")
    try:
        folders.make_private(path.parent)
        # O_EXCL: a second member of that name, or a folder there, is an attack.
        fd = folders.open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    except (FileExistsError, NotADirectoryError) as error:
        raise UnsafeArchive(f"{_shown(member)} is there twice") from error
    with os.fdopen(fd, "wb") as file:
        while block := content.read(_BLOCK):
            file.write(block)
        if file.tell() != member.size:
            raise UnsafeArchive(f"{_shown(member)} ends too early")


def _kind(member: tarfile.TarInfo) -> str:
    if member.issym() or member.islnk():
        return "a link"
    if member.isdev() or stat.S_ISFIFO(member.mode):
        return "a device"
    return "something else"


def _shown(member: tarfile.TarInfo) -> str:
    return repr(member.name[:120])
