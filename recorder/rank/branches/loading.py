"""Loading the user's files with a call on each of their branches.

A script that is started by its path is compiled by the interpreter itself, unless its path
belongs to a finder, as that of a zip file does: so here is one for it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

from hanglab.recorder.rank.branches.instrumentation import instrumented

_MAIN = "__main__"


class BranchLoader(SourceFileLoader):
    """Gives the instrumented code of a file; its own where that cannot be had."""

    def __init__(self, name: str, path: str, number_of: Callable[[str], int]) -> None:
        super().__init__(name, path)
        self._number_of = number_of

    def get_code(self, fullname: str) -> CodeType | None:
        try:
            return self.instrumented(self.get_data(self.path))
        except Exception:  # the interpreter itself says what is wrong
            return super().get_code(fullname)

    def instrumented(self, source: bytes) -> CodeType:
        return instrumented(source, self.path, self._number_of(self.path))


class UserModules:
    """A finder that has the user's own modules loaded with their branches."""

    def __init__(
        self, number_of: Callable[[str], int], is_user_code: Callable[[str], bool]
    ) -> None:
        self._number_of = number_of
        self._is_user_code = is_user_code

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader or not spec.origin:
            return None
        if not self._is_user_code(spec.origin):
            return None
        spec.loader = BranchLoader(name, spec.origin, self._number_of)
        return spec


class ScriptFinder:
    """Makes a script's path one that ``__main__`` is found in."""

    def __init__(self, script: str, number_of: Callable[[str], int]) -> None:
        self._script = self._given = script
        self._number_of = number_of

    def __call__(self, path: str) -> ScriptFinder:
        """A hook of ``sys.path_hooks``.  Raises ImportError for all other paths."""
        # Python makes it absolute, and leaves it as it is otherwise.
        if os.path.abspath(path) != self._script:
            raise ImportError
        self._given = path
        return self

    def find_spec(self, name: str, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _MAIN:
            return None
        loader = ScriptLoader(name, self._given, self._number_of)
        return importlib.util.spec_from_file_location(name, self._given, loader=loader)


class ScriptLoader(BranchLoader):
    """Leaves ``sys.path`` and ``__main__`` as they are for a script that is no module."""

    def get_code(self, fullname: str) -> CodeType | None:
        if sys.path and sys.path[0] == self.path:
            if getattr(sys.flags, "safe_path", False):
                del sys.path[0]
            else:
                sys.path[0] = os.path.dirname(os.path.realpath(self.path))
        return super().get_code(fullname)

    def instrumented(self, source: bytes) -> CodeType:
        return instrumented(source, self.path, self._number_of(self.path), is_script=True)
