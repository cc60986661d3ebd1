"""Room on the file systems that ranks write to, asked for without ever waiting for one.

A network file system that is gone blocks whoever asks it anything.  So another
thread asks, which is given up for a new one when it gets no answer, and a question
that has no answer yet is evidence.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Mapping
from typing import NamedTuple

from hanglab.recorder.case.file_system_space import Space
from hanglab.recorder.case.host_records import FileSystem
from hanglab.recorder.system.kernel_files import descriptors, read
from hanglab.recorder.system.mount_table import Mount, read_mounts, space_of
from hanglab.recorder.system.procfs import environment, open_file

#: Seconds that a sample waits for answers.
_PATIENCE_S = 0.1
#: The same where several do not come.
_MOST_PATIENCE_S = 0.3
#: Open files of one rank that are looked at, and folders of them that are asked for.
_MOST_FILES = 256
_MOST_FOLDERS = 16
#: Places of one rank that are remembered.
_MOST_PLACES = 32
#: File systems whose room says nothing.
_NOT_STORAGE = frozenset({"proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "mqueue"})


class MountedFolder(NamedTuple):
    """A folder in a mount namespace; processes may each have one of their own."""

    namespace: str
    path: str


class _Question:
    """One question for the space that a folder's file system has left."""

    def __init__(self, path: str) -> None:
        self.asked = time.monotonic()
        self.answer: tuple[Space, tuple[int, int]] | None = None
        self._path = path
        self._done = threading.Event()

    def ask(self) -> None:
        with contextlib.suppress(OSError):
            device = os.stat(self._path).st_dev
            self.answer = space_of(self._path), (os.major(device), os.minor(device))
        self._done.set()

    def wait(self, until: float) -> None:
        self._done.wait(max(0.0, until - time.monotonic()))

    @property
    def pending(self) -> bool:
        return not self._done.is_set()


class _Asker:
    """A thread that asks questions one after the other."""

    def __init__(self) -> None:
        self._batches: queue.SimpleQueue[list[_Question]] = queue.SimpleQueue()
        self._ended = False
        threading.Thread(target=self._run, name="hanglab-room", daemon=True).start()

    def ask(self, questions: list[_Question]) -> None:
        self._batches.put(questions)

    def end(self) -> None:
        """End once the question under way is answered, if ever."""
        self._ended = True
        self._batches.put([])

    def _run(self) -> None:
        while True:
            questions = self._batches.get()
            if self._ended:
                return
            for question in questions:
                question.ask()
                if self._ended:
                    return


class FileSystems:
    """The file systems that this host's ranks write to, with the room that each has left."""

    def __init__(self) -> None:
        #: Questions without an answer yet.
        self._pending: dict[MountedFolder, _Question] = {}
        self._asker = _Asker()
        self._temporary: dict[int, str] = {}
        #: Places of each process so far: a file that could not be written is soon closed.
        self._seen: dict[int, dict[tuple[str, MountedFolder], None]] = {}

    def spaces(self, processes: dict[int, int]) -> list[FileSystem]:
        """``processes``: rank -> pid.  File systems shared by ranks are told of once."""
        uses: dict[MountedFolder, set[str]] = {}
        ranks: dict[MountedFolder, set[int]] = {}
        through: dict[MountedFolder, int] = {}
        for rank, pid in processes.items():
            for use, place in self._places(pid):
                uses.setdefault(place, set()).add(use)
                ranks.setdefault(place, set()).add(rank)
                through.setdefault(place, pid)
        questions = self._asked(through)
        self._pending = {place: q for place, q in questions.items() if q.pending}
        mounted: dict[str, list[Mount]] = {}
        found: dict[tuple[str, str, str], FileSystem] = {}
        for place, question in questions.items():
            if place.namespace not in mounted:
                mounted[place.namespace] = _mounts_of(through[place])
            space = _file_system(place, question, mounted[place.namespace])
            if space is None or space.filesystem in _NOT_STORAGE:
                continue
            key = (place.namespace, space.path, space.filesystem)
            known = found.get(key, space)
            found[key] = FileSystem(
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

    def close(self) -> None:
        self._asker.end()

    def _asked(self, through: dict[MountedFolder, int]) -> dict[MountedFolder, _Question]:
        """A question for each place, by a process that sees it; most of them answered.

        One that does not come back keeps its thread: places of the same file system share
        it, and another thread asks after the rest.
        """
        questions = {place: self._pending[place] for place in through if place in self._pending}
        for place, question in list(questions.items()):
            if question.pending:
                questions |= _beside(place, question, through)
        left = [place for place in through if place not in questions]
        give_up = time.monotonic() + _MOST_PATIENCE_S
        while left:
            new = {place: _Question(f"/proc/{through[place]}/root{place.path}") for place in left}
            questions |= new
            self._asker.ask(list(new.values()))
            until = time.monotonic() + _PATIENCE_S
            for question in new.values():
                question.wait(until)
            left = [place for place in left if new[place].pending]
            if left:
                stuck = left[0]
                self._asker.end()
                self._asker = _Asker()
                shared = _beside(stuck, new[stuck], dict.fromkeys(left, through[stuck]))
                questions |= shared
                left = [place for place in left if place not in shared]
            if time.monotonic() >= give_up:
                # Nobody has come to ask after these: the next sample will.
                return {place: q for place, q in questions.items() if place not in left}
        return questions

    def _places(self, pid: int) -> list[tuple[str, MountedFolder]]:
        """Folders in which a process works, keeps temporary or shared files, or has files open."""
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
                seen[use, MountedFolder(namespace, path)] = None
        return [(use, place) for use, place in seen if place.namespace == namespace]


def _beside(
    stuck: MountedFolder, question: _Question, through: Mapping[MountedFolder, int]
) -> dict[MountedFolder, _Question]:
    """The place and those of ``through`` below the same mount, each with its question."""
    mounted = _mounts_of(through[stuck])
    mount = _above(stuck.path, mounted)
    # Below the root itself lie links to anywhere.
    if mount is None or mount.point == "/":
        return {stuck: question}
    return {
        place: question
        for place in through
        if place == stuck
        or (place.namespace == stuck.namespace and _above(place.path, mounted) == mount)
    }


def _folders_of_open_files(pid: int) -> list[str]:
    folders: dict[str, None] = {}
    for name in descriptors(pid)[:_MOST_FILES]:
        path = open_file(pid, name)
        if path.startswith("/") and not path.startswith(("/dev/", "/proc/", "/memfd:")):
            folders[os.path.dirname(path.removesuffix(" (deleted)"))] = None
    return list(folders)[:_MOST_FOLDERS]


def _temporary(pid: int) -> str:
    told = environment(pid).get("TMPDIR", "")
    return told if told.startswith("/") else "/tmp"


def _mounts_of(pid: int) -> list[Mount]:
    """The mounts that a process sees, the latest first."""
    return read_mounts(read(f"/proc/{pid}/mountinfo") or "")[::-1]


def _file_system(
    place: MountedFolder, question: _Question, mounted: list[Mount]
) -> FileSystem | None:
    if question.pending:
        mount = _above(place.path, mounted)
        return FileSystem(
            uses=[],
            path=mount.point if mount else place.path,
            ranks=[],
            filesystem=mount.filesystem if mount else "",
            unanswered_s=time.monotonic() - question.asked,
        )
    if question.answer is None:
        return None
    space, device = question.answer
    same = [m for m in mounted if m.device == device]
    # A bind mount shows only a part.
    mount = min(same, key=lambda m: (m.root != "/", len(m.point)), default=None)
    return FileSystem(
        uses=[],
        path=mount.point if mount else place.path,
        ranks=[],
        filesystem=mount.filesystem if mount else "",
        **space._asdict(),
    )


def _above(path: str, mounted: list[Mount]) -> Mount | None:
    """The mount of a path, links aside; of several mounts at one point the latest."""
    above = [m for m in mounted if _below(path, m.point)]
    return max(above, key=lambda m: len(m.point), default=None)


def _below(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")
