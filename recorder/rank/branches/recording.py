"""Recording of branches in this process: its files, and the ring once it is known to be a rank."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType

from hanglab.recorder.case import user_code as ownership
from hanglab.recorder.rank.branches.instrumentation import instrumented
from hanglab.recorder.rank.branches.loading import BranchLoader, ScriptFinder, UserModules
from hanglab.recorder.rank.branches.ring import BranchRing, ignore, record_with

#: Set to 1, this name of the environment has branches recorded.
BRANCHES = "HANGLAB_BRANCHES"


def wanted(environment: Mapping[str, str]) -> bool:
    return environment.get(BRANCHES) == "1"


class BranchRecording:
    """Compiles the user's files for it, and writes to a rank's ring once there is one."""

    def __init__(self) -> None:
        self._files: list[str] = []
        self._ring: BranchRing | None = None
        self._is_user_code: Callable[[str], bool] | None = None

    def watch(self) -> None:
        """Have the user's files loaded with their branches from here on, the script's, too."""
        if self._is_user_code is not None:
            return
        record_with(ignore)
        os.register_at_fork(after_in_child=lambda: record_with(ignore))
        user_code = ownership.UserCode(
            ownership.stdlib_folders(), ownership.site_folders(), ownership.own_folders()
        )
        self._is_user_code = user_code
        sys.meta_path.insert(0, UserModules(self.number_of, user_code))
        script = os.path.abspath(sys.argv[0]) if getattr(sys, "argv", None) else ""
        if script.endswith(".py") and os.path.isfile(script) and user_code(script):
            sys.path_hooks.insert(0, ScriptFinder(script, self.number_of))

    def begin(self, path: Path) -> None:
        """Write this process's branches to a file.  Raises OSError."""
        self.watch()
        self._ring = BranchRing(path)
        for file in self._files:
            self._ring.name_file(file)
        record_with(self._ring.taken)

    def number_of(self, file: str) -> int:
        """The number of a file of the program's."""
        if file not in self._files:
            self._files.append(file)
            if self._ring is not None:
                self._ring.name_file(file)
        return self._files.index(file)

    def records(self, file: str) -> bool:
        """True if the branches of a file are wanted."""
        return self._is_user_code is not None and self._is_user_code(file)

    def loader(self, name: str, file: str) -> BranchLoader | None:
        """A loader of one file; None where its branches are not wanted."""
        return BranchLoader(name, file, self.number_of) if self.records(file) else None

    def script_code(self, file: str, source: bytes) -> CodeType | None:
        """Code of a script; None where its branches are not wanted.

        Raises SyntaxError and ValueError.
        """
        return instrumented(source, file, self.number_of(file)) if self.records(file) else None


RECORDING = BranchRecording()
