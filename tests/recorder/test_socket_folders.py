"""Folders for sockets: made, held, and swept once nobody uses them, never before."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hanglab.recorder.system import socket_folders

HOLDS = """
import sys, time
from hanglab.recorder.system import socket_folders
print(socket_folders.Runtime().path, flush=True)
time.sleep(600)
"""
SWEEPS = """
import os
from hanglab.recorder.system import socket_folders
while os.getppid() == {parent}:
    socket_folders.sweep()
"""


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        monkeypatch.setenv("TMPDIR", name)
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield Path(name)
    tempfile.tempdir = None


def left_by_one_killed(root: Path) -> Path:
    with subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        folder = Path(one.stdout.readline().strip())
        socket_folders.sweep()
        assert folder.parent == root and folder.is_dir(), "its owner lives"
        one.send_signal(signal.SIGKILL)
    return folder


def test_what_is_closed_is_gone(root: Path) -> None:
    with socket_folders.Runtime() as folder:
        (folder / "traces").mkdir()
        (folder / "traces" / "a.json").write_text("{}")
        assert folder.parent == root and folder.stat().st_mode & 0o077 == 0
    assert list(root.iterdir()) == []


def test_folder_of_a_killed_owner_is_swept(root: Path) -> None:
    folder = left_by_one_killed(root)
    (folder / "inner").mkdir()
    (folder / "inner" / "agent.err").write_text("x")
    socket_folders.sweep()
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_folder_in_which_somebody_listens_stays(root: Path, kind: socket.SocketKind) -> None:
    """The ranks of a job go on where hanglab and its agent were killed."""
    folder = left_by_one_killed(root)
    with socket.socket(socket.AF_UNIX, kind) as rank:
        rank.bind(str(folder / "rank0.sock"))
        if kind is socket.SOCK_STREAM:
            rank.listen()
            rank.setblocking(False)
        socket_folders.sweep()
        assert (folder / "rank0.sock").exists()
        if kind is socket.SOCK_STREAM:
            with pytest.raises(BlockingIOError):
                rank.accept()  # nobody has disturbed it
    assert (folder / "rank0.sock").exists(), "the file outlives its socket"
    socket_folders.sweep()
    assert list(root.iterdir()) == []


def test_folders_of_others_stay(root: Path) -> None:
    (root / "hl-abcdefgh").mkdir(mode=0o700)  # has no lock
    open_to_all = root / "hl-abcdefgi"
    open_to_all.mkdir()
    open_to_all.chmod(0o755)
    (open_to_all / socket_folders.OWNER).touch()
    (root / "hl-long-named").mkdir(mode=0o700)
    (root / "hl-long-named" / socket_folders.OWNER).touch()
    before = sorted(root.rglob("*"))
    socket_folders.sweep()
    assert sorted(root.rglob("*")) == before


def test_links_are_not_followed(root: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o700)
    for name in (socket_folders.OWNER, socket_folders.LOCK, "kept.txt"):
        (mine / name).touch()
    (root / "hl-abcdefgh").symlink_to(mine)
    folder = left_by_one_killed(root)
    (folder / "link").symlink_to(mine)
    meetings = socket_folders.meetings()
    meetings.mkdir(mode=0o700)
    (meetings / "0123456789ab").symlink_to(mine)
    socket_folders.sweep()
    assert not folder.exists() and (mine / "kept.txt").exists()
    (meetings / "0123456789ab").unlink()
    meetings.rmdir()
    meetings.symlink_to(tmp_path)
    (tmp_path / "0123456789ab").mkdir(mode=0o700)
    socket_folders.sweep()
    assert (tmp_path / "0123456789ab").is_dir()


def test_meeting_places_without_an_agent_are_swept(root: Path) -> None:
    for name in ("0123456789ab", "0123456789ac"):
        (socket_folders.meetings() / name).mkdir(mode=0o700, parents=True)
    socket_folders.meetings().chmod(0o700)
    os.close(socket_folders.hold(socket_folders.meetings() / "0123456789ab", socket_folders.LOCK))
    held = socket_folders.claim(socket_folders.meetings() / "0123456789ab")
    assert held is not None
    socket_folders.sweep()
    assert [path.name for path in socket_folders.meetings().iterdir()] == ["0123456789ab"]
    os.close(held)
    socket_folders.sweep()
    assert list(root.iterdir()) == []


def test_meeting_place_for_which_an_agent_is_being_started_stays(root: Path) -> None:
    place = socket_folders.meetings() / "0123456789ab"
    place.mkdir(mode=0o700, parents=True)
    socket_folders.meetings().chmod(0o700)
    lock = socket_folders.hold(place, socket_folders.LOCK)
    socket_folders.sweep()
    assert place.is_dir()
    os.close(lock)


def test_whoever_waits_for_a_place_learns_that_it_was_removed(root: Path) -> None:
    place = socket_folders.meetings() / "0123456789ab"
    with pytest.raises(socket_folders.FolderRemoved):
        socket_folders.hold(place, socket_folders.LOCK)


def test_what_is_being_made_is_never_swept(root: Path) -> None:
    """Sweeps of others at every moment of a folder's making."""
    command = [sys.executable, "-c", SWEEPS.format(parent=os.getpid())]
    sweepers = [subprocess.Popen(command) for _ in range(2)]
    try:
        for _ in range(300):
            with socket_folders.Runtime() as folder:
                (folder / "agent.err").touch()
                assert (folder / socket_folders.OWNER).exists()
                assert os.listdir(folder)
                assert (folder / "agent.err").exists()
            assert not folder.exists()
        assert all(sweeper.poll() is None for sweeper in sweepers)
    finally:
        for sweeper in sweepers:
            sweeper.kill()
            sweeper.wait()
    assert list(root.iterdir()) == []
