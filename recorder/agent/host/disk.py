"""Room on the file systems that ranks write to, asked for without ever waiting for one.

A network file system that is gone blocks whoever asks it anything.  So each
question is a thread of its own, and one that has no answer yet is evidence.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import NamedTuple

from hanglab.recorder.agent.host.files import descriptors, read
from hanglab.recorder.case.surroundings import Space

#: Seconds that a sample waits for answers.
_PATIENCE_S = 0.1
#: Open files of one rank that are looked at, and folders of them that are asked for.
_MOST_FILES = 256
_MOST_FOLDERS = 16
#: Places of one rank that are remembered.
_MOST_PLACES = 32
#: File systems whose room says nothing.
_NOT_STORAGE = frozenset({"proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "mqueue"})


class Place(NamedTuple):
    """A folder in a mount namespace; processes may each have one of their own."""

    namespace: str
    path: str


class Mounted(NamedTuple):
    device: tuple[int, int]
    point: str
    filesystem: str
    #: False where it shows only a part of its file system, as a bind mount does.
    whole: bool


class _Question:
    """One statvfs under way."""

    def __init__(self, path: str) -> None:
        self.asked = time.monotonic()
        self.answer: tuple[os.statvfs_result, tuple[int, int]] | None = None
        self._path = path
        self._thread = threading.Thread(target=self._ask, name="hanglab-room", daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        with contextlib.suppress(OSError):
            device = os.stat(self._path).st_dev
            self.answer = os.statvfs(self._path), (os.major(device), os.minor(device))

    def wait(self, until: float) -> None:
        self._thread.join(max(0.0, until - time.monotonic()))

    @property
    def pending(self) -> bool:
        return self._thread.is_alive()


class Rooms:
    """Room of the file systems of this host's ranks."""

    def __init__(self) -> None:
        #: Questions without an answer yet.
        self._pending: dict[Place, _Question] = {}
        self._temporary: dict[int, str] = {}
        #: Places of each process so far: a file that could not be written is soon closed.
        self._seen: dict[int, dict[tuple[str, Place], None]] = {}

    def spaces(self, processes: dict[int, int]) -> list[Space]:
        """``processes``: rank -> pid.  File systems shared by ranks are told of once."""
        uses: dict[Place, set[str]] = {}
        ranks: dict[Place, set[int]] = {}
        through: dict[Place, int] = {}
        for rank, pid in processes.items():
            for use, place in self._places(pid):
                uses.setdefault(place, set()).add(use)
                ranks.setdefault(place, set()).add(rank)
                through.setdefault(place, pid)
        questions = {
            place: self._pending.get(place) or _Question(f"/proc/{pid}/root{place.path}")
            for place, pid in through.items()
        }
        until = time.monotonic() + _PATIENCE_S
        for question in questions.values():
            question.wait(until)
        self._pending = {place: q for place, q in questions.items() if q.pending}
        mounted: dict[str, list[Mounted]] = {}
        found: dict[tuple[str, str, str], Space] = {}
        for place, question in questions.items():
            if place.namespace not in mounted:
                mounted[place.namespace] = mounts_of(
                    read(f"/proc/{through[place]}/mountinfo") or ""
                )
            space = _space(place, question, mounted[place.namespace])
            if space is None or space.filesystem in _NOT_STORAGE:
                continue
            key = (place.namespace, space.path, space.filesystem)
            known = found.get(key, space)
            found[key] = Space(
                uses=sorted({*known.uses, *uses[place]}),
                path=space.path,
                ranks=sorted({*known.ranks, *ranks[place]}),
                filesystem=space.filesystem,
                size_bytes=known.size_bytes,
                free_bytes=known.free_bytes,
                inodes=known.inodes,
                free_inodes=known.free_inodes,
                unanswered_s=max(known.unanswered_s, space.unanswered_s),
            )
        return list(found.values())

    def _places(self, pid: int) -> list[tuple[str, Place]]:
        """Where a process works, keeps temporary and shared memory files, and has files open."""
        try:
            namespace = os.readlink(f"/proc/{pid}/ns/mnt")
            folder = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            return []
        if pid not in self._temporary:
            self._temporary[pid] = _temporary(pid)
        found = [("cwd", folder), ("tmp", self._temporary[pid]), ("shm", "/dev/shm")]
        found += [("file", folder) for folder in _folders_of_open_files(pid)]
        seen = self._seen.setdefault(pid, {})
        for use, path in found:
            if len(seen) < _MOST_PLACES:
                seen[use, Place(namespace, path)] = None
        return [(use, place) for use, place in seen if place.namespace == namespace]


def _folders_of_open_files(pid: int) -> list[str]:
    folders: dict[str, None] = {}
    for name in descriptors(pid)[:_MOST_FILES]:
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/{pid}/fd/{name}")
            if path.startswith("/") and not path.startswith(("/dev/", "/proc/", "/memfd:")):
                folders[os.path.dirname(path.removesuffix(" (deleted)"))] = None
    return list(folders)[:_MOST_FOLDERS]


def _temporary(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            words = file.read(1 << 20).split(b"\0")
    except OSError:
        return "/tmp"
    for word in words:
        if word.startswith(b"TMPDIR=/"):
            return os.fsdecode(word[7:])
    return "/tmp"


def mounts_of(mountinfo: str) -> list[Mounted]:
    """The mounts that a process sees, by its /proc/PID/mountinfo; the latest first."""
    found = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, tail = left.split(), right.split()
        if len(fields) < 5 or not tail:
            continue
        major, _, minor = fields[2].partition(":")
        point = fields[4].replace("\\040", " ")
        found.append(Mounted((int(major), int(minor)), point, tail[0], fields[3] == "/"))
    return found[::-1]


def _space(place: Place, question: _Question, mounted: list[Mounted]) -> Space | None:
    if question.pending:
        above = [m for m in mounted if _below(place.path, m.point)]
        # Of several at one point the latest is what one sees.
        mount = max(above, key=lambda m: len(m.point), default=None)
        return Space(
            uses=[],
            path=mount.point if mount else place.path,
            ranks=[],
            filesystem=mount.filesystem if mount else "",
            unanswered_s=time.monotonic() - question.asked,
        )
    if question.answer is None:
        return None
    room, device = question.answer
    same = [m for m in mounted if m.device == device]
    mount = min(same, key=lambda m: (not m.whole, len(m.point)), default=None)
    return Space(
        uses=[],
        path=mount.point if mount else place.path,
        ranks=[],
        filesystem=mount.filesystem if mount else "",
        size_bytes=room.f_blocks * room.f_frsize,
        free_bytes=room.f_bavail * room.f_frsize,
        inodes=room.f_files or None,
        free_inodes=room.f_favail if room.f_files else None,
    )


def _below(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")
