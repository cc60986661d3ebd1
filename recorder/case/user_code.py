"""Telling user code from code of the interpreter, of installed packages and of hanglab.

Standard library only: ranks and the agent use it.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Final

#: The name of a file's own code in frames, and of code that Python runs within a function's.
MODULE: Final = "<module>"
PARTS_OF_FUNCTIONS: Final = frozenset(
    {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>"}
)


class UserCode:
    """Says of a code file whether it is the user's own.

    Arguments are directories, as in :class:`~hanglab.recorder.case.records.Python`.
    Scenarios that come with hanglab count as user code, wherever they are installed.
    """

    def __init__(self, stdlib: Sequence[str], site: Sequence[str], own: Sequence[str]) -> None:
        self._known: dict[str, bool] = {}
        self._own = tuple(_prefix(p) for p in own)
        self._foreign = tuple(_prefix(p) for p in (*stdlib, *site))
        self._scenarios = tuple(
            _prefix(os.path.join(os.path.dirname(p.rstrip(os.sep)), "scenarios")) for p in own
        )

    def __call__(self, file: str) -> bool:
        known = self._known.get(file)
        if known is None:
            known = self._judge(file)
            if len(self._known) < 4096:
                self._known[file] = known
        return known

    def _judge(self, file: str) -> bool:
        if not file or file.startswith("<"):
            return False
        if file.startswith(self._scenarios):
            return True
        return not file.startswith(self._own) and not file.startswith(self._foreign)


class ProgramCode:
    """Says of a code file whether it is the user's or that of a package other than torch.

    Trainers of packages hold the loop that a job runs in.
    """

    def __init__(self, user_code: UserCode, site: Sequence[str]) -> None:
        self._user_code = user_code
        self._site = tuple(_prefix(folder) for folder in site)

    def __call__(self, file: str) -> bool:
        if self._user_code(file):
            return True
        for folder in self._site:
            if file.startswith(folder):
                name = file[len(folder) :].split(os.sep, 1)[0]
                return name not in ("torch", "hanglab")
        return False


def _prefix(folder: str) -> str:
    return folder.rstrip(os.sep) + os.sep


def stdlib_folders() -> list[str]:
    """Directories of this interpreter's standard library."""
    paths = sysconfig.get_paths()
    return _distinct([paths["stdlib"], paths["platstdlib"], os.path.dirname(os.__file__)])


def site_folders() -> list[str]:
    """Directories of this interpreter's installed packages."""
    paths = sysconfig.get_paths()
    found = [paths["purelib"], paths["platlib"], site.getusersitepackages()]
    found += site.getsitepackages()
    found += [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
    return _distinct(found)


def own_folders() -> list[str]:
    """Directories of hanglab's own packages, as they are imported and as they lie on disk."""
    here = Path(__file__).parent.parent
    found = []
    for recorder in (here, here.resolve()):
        found += [
            str(recorder.parent / name)
            for name in ("recorder", "harness", "analyzer")
            if (recorder.parent / name).is_dir()
        ]
    return _distinct(found)


def _distinct(paths: Sequence[str]) -> list[str]:
    """Each path, and what it resolves to, once, in order."""
    out: dict[str, None] = {}
    for path in paths:
        out[os.path.abspath(path)] = None
        out[os.path.realpath(path)] = None
    return list(out)
