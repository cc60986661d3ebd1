"""Archives from strangers: whatever they hold, nothing comes to lie outside the new folder."""

from __future__ import annotations

import gzip
import io
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hanglab.harness.errors import HanglabError
from hanglab.harness.recording import archives
from hanglab.recorder.archive import packing
from hanglab.recorder.archive.packing import UnsafeArchive, pack, unpack


def archive(path: Path, fill: Callable[[tarfile.TarFile], None], **options: object) -> Path:
    with tarfile.open(path, "w:gz", **options) as tar:  # type: ignore[call-overload]
        fill(tar)
    return path


def add(tar: tarfile.TarFile, name: str, data: bytes = b"evil", **fields: object) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    for field, value in fields.items():
        setattr(member, field, value)
    tar.addfile(member, io.BytesIO(data) if member.isreg() else None)


def link(name: str, target: str, kind: bytes) -> Callable[[tarfile.TarFile], None]:
    return lambda tar: add(tar, name, b"", type=kind, linkname=target)


HOSTILE = {
    "absolute": lambda tar: add(tar, "/tmp/hanglab-evil"),
    "parent": lambda tar: add(tar, "case/../../evil"),
    "parent in front": lambda tar: add(tar, "../evil"),
    "outside the root": lambda tar: add(tar, "evil"),
    "backslashes": lambda tar: add(tar, "case\\..\\evil"),
    "hidden": lambda tar: add(tar, "case/.profile"),
    "the root as a file": lambda tar: add(tar, "case"),
    "too long": lambda tar: add(tar, "case/" + "a/" * 10 + "b" * 2000),
    "too deep": lambda tar: add(tar, "case/" + "a/" * 20 + "b"),
    "symbolic link": link("case/hosts", "/tmp", tarfile.SYMTYPE),
    "link within": link("case/a", "b", tarfile.SYMTYPE),
    "hard link": link("case/passwd", "/etc/passwd", tarfile.LNKTYPE),
    "device": link("case/null", "", tarfile.CHRTYPE),
    "block device": link("case/disk", "", tarfile.BLKTYPE),
    "fifo": link("case/pipe", "", tarfile.FIFOTYPE),
    "unknown kind": link("case/what", "", b"Q"),
    "empty": lambda tar: None,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_member_is_refused(tmp_path, what):
    source = archive(tmp_path / "x.tgz", HOSTILE[what])
    before = set(os.listdir("/tmp"))
    with pytest.raises(UnsafeArchive) as refused:
        unpack(source, tmp_path / "out")
    assert str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["x.tgz"]
    assert "hanglab-evil" not in set(os.listdir("/tmp")) - before


def test_link_then_a_file_through_it(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()

    def fill(tar):
        add(tar, "case/a", b"", type=tarfile.SYMTYPE, linkname=str(outside))
        add(tar, "case/a/evil")

    with pytest.raises(UnsafeArchive):
        unpack(archive(tmp_path / "x.tgz", fill), tmp_path / "out")
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("second", ["case/a", "case/a/b", "case/./a"])
def test_same_name_twice(tmp_path, second):
    def fill(tar):
        add(tar, "case/a", b"first")
        add(tar, second, b"second")

    with pytest.raises(UnsafeArchive, match="twice"):
        unpack(archive(tmp_path / "x.tgz", fill), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_bomb(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "RATIO_FROM", 1 << 20)
    source = archive(tmp_path / "x.tgz", lambda tar: add(tar, "case/zeros", bytes(64 << 20)))
    assert source.stat().st_size < 100_000
    with pytest.raises(UnsafeArchive, match="far more than it holds"):
        unpack(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_too_many_members(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "MOST_FILES", 50)

    def fill(tar):
        for number in range(51):
            add(tar, f"case/{number}", b"")

    with pytest.raises(UnsafeArchive, match="more than 50"):
        unpack(archive(tmp_path / "x.tgz", fill), tmp_path / "out")


def test_huge_header_is_not_read_into_memory(tmp_path):
    """A long-name header of a gigabyte, which compresses to a megabyte."""
    member = tarfile.TarInfo("././@LongLink")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    with gzip.open(tmp_path / "x.tgz", "wb", 1) as file:
        file.write(member.tobuf(tarfile.GNU_FORMAT))
        for _ in range(64):
            file.write(bytes(1 << 20))
    with pytest.raises(UnsafeArchive, match="header of 1073741824 bytes"):
        unpack(tmp_path / "x.tgz", tmp_path / "out")


def block(data):
    return data + bytes(-len(data) % 512)


def header(name, kind=tarfile.REGTYPE, size=0):
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


def pax(key, value, kind=tarfile.XHDTYPE):
    record = f" {key}={value}\n"
    length = len(record) + len(str(len(record) + 3))
    data = f"{length}{record}".encode()
    return header("pax", kind, len(data)) + block(data)


#: A sparse file of version 1.0, whose list of holes stands before its content.
SPARSE = header("pax", tarfile.XHDTYPE, 44) + block(
    b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
)
HEADERS = {
    "many extended": pax("comment", "x") * 3000,
    "many for all": pax("comment", "x", tarfile.XGLTYPE) * 3000,
    "one for all": pax("comment", "x", tarfile.XGLTYPE),
    "many long names": (header("././@LongLink", tarfile.GNUTYPE_LONGNAME, 5) + block(b"case/"))
    * 3000,
    "map of holes": pax("GNU.sparse.map", "a,b"),
    "size of holes": pax("GNU.sparse.size", "abc"),
    "no number of holes": SPARSE,
    "a negative size": pax("size", "-5"),
}


@pytest.mark.parametrize("what", HEADERS)
def test_headers_are_refused_in_one_sentence(tmp_path, what):
    """Also where tarfile itself would run out of stack, or into an error of arithmetic."""
    with gzip.open(tmp_path / "x.tgz", "wb") as file:
        file.write(HEADERS[what] + header("case/a") + bytes(1024))
    with pytest.raises(UnsafeArchive) as refused:
        unpack(tmp_path / "x.tgz", tmp_path / "out")
    assert str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["x.tgz"]


def test_bytes_of_headers_count(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "RATIO_FROM", 1 << 20)
    with gzip.open(tmp_path / "x.tgz", "wb") as file:
        for number in range(100):
            file.write(pax("comment", "v" * 60000) + header(f"case/{number}"))
        file.write(bytes(1024))
    monkeypatch.setattr(packing, "MOST_RATIO", 10)
    with pytest.raises(UnsafeArchive, match="far more than it holds"):
        unpack(tmp_path / "x.tgz", tmp_path / "out")


def test_an_endless_list_of_holes_is_not_read(tmp_path):
    with gzip.open(tmp_path / "x.tgz", "wb", 1) as file:
        file.write(SPARSE + header("case/a", size=512) + b"9" * 12 + b"\n" + b"1\n" * (4 << 20))
    with pytest.raises(UnsafeArchive, match="a sparse file"):
        unpack(tmp_path / "x.tgz", tmp_path / "out")


def test_names_too_long_for_one_header_come_through(tmp_path):
    folder = tmp_path / "case" / ("d" * 120) / ("e" * 120)
    folder.mkdir(parents=True)
    (folder / "f").write_text("kept")
    pack(tmp_path / "case", tmp_path / "a.tgz")
    assert unpack(tmp_path / "a.tgz", tmp_path / "out") == 1
    (found,) = (tmp_path / "out").rglob("f")
    assert found.read_text() == "kept"


def test_a_name_that_no_disk_holds_is_no_want_of_room(tmp_path):
    source = archive(tmp_path / "x.tgz", lambda tar: add(tar, "case/" + "b" * 300))
    with pytest.raises(HanglabError, match="too long") as caught:
        archives.unpack(source, tmp_path / "out", damaged=False)
    assert "space" not in caught.value.advice and "name" in caught.value.advice


def test_told_to_end_halfway_it_leaves_nothing(tmp_path):
    # Much takes long to unpack, and little to pack.
    archive(
        tmp_path / "x.tgz",
        lambda tar: [add(tar, f"case/{name}", bytes(48 << 20)) for name in "abcdefgh"],
        compresslevel=1,
    )
    command = [sys.executable, "-m", "hanglab.harness.cli", "unpack", "x.tgz", "-o", "out"]
    with subprocess.Popen(command, cwd=tmp_path) as process:
        while len(os.listdir(tmp_path)) == 1:
            assert process.poll() is None
        process.terminate()
        assert process.wait() == 128 + signal.SIGTERM
    assert os.listdir(tmp_path) == ["x.tgz"]


@pytest.mark.parametrize("cut", [0, 10, 200, -20])
def test_damaged_archive(tmp_path, cut):
    source = archive(tmp_path / "x.tgz", lambda tar: add(tar, "case/a", os.urandom(4000)))
    source.write_bytes(source.read_bytes()[:cut])
    with pytest.raises(UnsafeArchive):
        unpack(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["x.tgz"]


def test_not_an_archive(tmp_path):
    (tmp_path / "x.tgz").write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(UnsafeArchive):
        unpack(tmp_path / "x.tgz", tmp_path / "out")


def test_there_and_back(tmp_path):
    case = tmp_path / "case"
    (case / "hosts" / "h").mkdir(parents=True)
    (case / "job.json").write_bytes(b"{}")
    (case / "hosts" / "h" / "data").write_bytes(os.urandom(100_000))
    (case / "link").symlink_to("/etc/passwd")
    (case / ".hidden").write_text("temporary")
    pack(case, tmp_path / "a.tgz")
    assert (tmp_path / "a.tgz").stat().st_mode & 0o777 == 0o600
    os.utime(case / "job.json", (1, 1))
    pack(case, tmp_path / "b.tgz")
    assert (tmp_path / "a.tgz").read_bytes() == (tmp_path / "b.tgz").read_bytes()
    assert unpack(tmp_path / "a.tgz", tmp_path / "out") == 2
    found = {p.relative_to(tmp_path / "out"): p for p in (tmp_path / "out").rglob("*")}
    assert {str(p) for p in found} == {"hosts", "hosts/h", "hosts/h/data", "job.json"}
    assert all(p.stat().st_mode & 0o077 == 0 for p in found.values())
    original = (case / "hosts" / "h" / "data").read_bytes()
    assert (tmp_path / "out" / "hosts" / "h" / "data").read_bytes() == original


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "a.tgz").write_text("mine")
    (tmp_path / "case").mkdir()
    (tmp_path / "case" / "job.json").write_text("{}")
    with pytest.raises(FileExistsError):
        pack(tmp_path / "case", tmp_path / "a.tgz")
    assert (tmp_path / "a.tgz").read_text() == "mine"
    pack(tmp_path / "case", tmp_path / "b.tgz")
    with pytest.raises(FileExistsError):
        unpack(tmp_path / "b.tgz", tmp_path / "case")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tgz", "b.tgz", "case"]
