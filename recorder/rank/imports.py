"""Calling back once a module has been imported, without importing it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, cast

from hanglab.recorder.rank.error_guard import GUARD


class AfterImport:
    """A finder that finds nothing of its own: it lets the others look, and watches.

    It leaves ``sys.meta_path`` once every module that it waits for is there.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Callable[[ModuleType], None]] = {}

    def add(self, name: str, callback: Callable[[ModuleType], None]) -> None:
        """Call ``callback(module)`` after the module's import, at once if it is there already.

        What the callback raises is dropped.
        """
        module = sys.modules.get(name)
        if module is not None and not _importing(module):
            with GUARD:
                callback(module)
            return
        self._waiting[name] = callback
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def stop(self) -> None:
        self._waiting.clear()
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        callback = self._waiting.pop(fullname, None)
        if callback is None:
            return None
        if not self._waiting:
            self.stop()
        # With its name taken off the list this finder is out of the way.
        spec = find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        spec.loader = cast(Any, _Watched(spec.loader, callback))
        return spec


class _Watched:
    """Delegates to the module's own loader and calls back when it has run."""

    def __init__(self, loader: Any, callback: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._callback = callback

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # From here on the module is its own loader's, as if nobody had watched.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        with GUARD:
            self._callback(module)


def _importing(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))
