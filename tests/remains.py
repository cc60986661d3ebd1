"""What a run of the tests leaves behind: nothing.

Each process of pytest's has a folder of its own for temporary files, and a mark
in the environment of all that it starts, so that others who use the machine at
the same time count for nothing.  What torch, multiprocessing and programs that
tests kill cannot remove goes with that folder; what hanglab keeps there it must
remove by itself.  ``tmp_path`` lies where it always does.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

from hanglab.recorder.profiling import agent_notes
from hanglab.recorder.system import socket_folders

MARK = "RUN_OF_TESTS"
#: What pytest takes as the folder of its own.
_PYTEST = "PYTEST_DEBUG_TEMPROOT"
#: Sockets in folders below it need addresses of less than 108 bytes.
_LONGEST = 40
#: For what ends by itself, in seconds.
_PATIENCE_S = 30.0
#: Folders of recorded jobs and, below the user's own, of those that record themselves.
_OURS = re.compile(r"hl-[a-z0-9_]{8}")
_AGENT = "hanglab.recorder.agent"
_PREFIX = "hlt-"


class Remains:
    """The folder of this process, from pytest's configuration to its end."""

    def __init__(self) -> None:
        root = os.environ.setdefault(_PYTEST, tempfile.gettempdir())
        if len(root) > _LONGEST:
            root = "/tmp"
        for name in os.listdir(root):
            if name.startswith(_PREFIX):  # maybe of a pytest that was killed
                socket_folders.remove_unused(Path(root, name))
        while True:
            self.folder = tempfile.mkdtemp(prefix=_PREFIX, dir=root)
            # Another pytest, or another process of this one, may clear up before it is held.
            with contextlib.suppress(socket_folders.FolderRemoved):
                self._lock = socket_folders.hold(Path(self.folder))
                break
        os.environ["TMPDIR"] = os.environ[MARK] = self.folder
        tempfile.tempdir = None
        #: After which test each thing was seen first.
        self._after: dict[str, str] = {}

    def note(self, test: str) -> None:
        """A test has ended."""
        for name in self._things():
            self._after.setdefault(name, test)

    def wait(self) -> list[str]:
        """What does not go away, in words."""
        until = time.monotonic() + _PATIENCE_S
        while True:
            # As the next agent would, after those that tests have killed.
            socket_folders.sweep()
            agent_notes.read_all()
            left = self._left()
            if not left or time.monotonic() > until:
                return left
            time.sleep(0.05)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)

    def _things(self) -> list[str]:
        """What hanglab has put into the folder, as paths below it."""
        found = []
        for name in sorted(os.listdir(self.folder)):
            inner = Path(self.folder, name)
            if name == f"hanglab-{os.getuid()}":
                found += [f"{name}/{one}" for one in sorted(os.listdir(inner))]
            elif _OURS.fullmatch(name):
                found.append(name)
        return found

    def _left(self) -> list[str]:
        left = []
        for name in self._things():
            path = Path(self.folder, name)
            content = sorted(os.listdir(path))[:8] if path.is_dir() else []
            since = self._after.get(name, "the last test")
            left.append(f"{path} {content or ''}, first seen after {since}")
        return left + [f"process {pid}: {command}" for pid, command in self._processes()]

    def _processes(self) -> list[tuple[int, str]]:
        mark = f"{MARK}={self.folder}".encode()
        found = []
        for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
            try:
                marked = mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (OSError, UnicodeDecodeError):
                continue
            if marked and _AGENT in command:
                found.append((pid, command))
        return found
