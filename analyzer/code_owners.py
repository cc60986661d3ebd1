"""Owners of code: the user, torch, Python, a package or the recorder.

Names of the user's own files and functions decide nothing here.  Only the
places where other people's code lies are recognised, so that what remains is
the user's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Protocol, TypeVar

from hanglab.recorder.case.records import Python


class FrameLike(Protocol):
    @property
    def function(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...


F = TypeVar("F", bound=FrameLike)


class Owner(str, Enum):
    USER = "user"
    TORCH = "torch"
    STDLIB = "stdlib"
    PACKAGE = "package"
    RECORDER = "recorder"


_PACKAGE_PARTS = ("/site-packages/", "/dist-packages/")
#: Where hanglab's own scenarios lie once they are installed: they stand for the user's scripts.
_SCENARIOS = "hanglab/scenarios/"
#: Code of the recorder that runs inside ranks, wherever hanglab is installed from: an editable
#: installation lies in no folder of packages.
_IN_RANKS = "/hanglab/recorder/rank/"


def _below(path: str, folders: Iterable[str]) -> bool:
    return any(path.startswith(folder.rstrip("/") + "/") for folder in folders if folder)


def _in_standard_library(path: str) -> bool:
    """True if a path looks like ``.../lib/python3.11/threading.py`` (an unknown machine's)."""
    _, found, tail = path.rpartition("/lib/python3")
    return bool(found) and "/" in tail and tail.split("/", 1)[0].lstrip(".").isdigit()


class CodeMap:
    """Tells owners of files apart, by where an interpreter says that its own code lies."""

    def __init__(self, python: Python | None = None) -> None:
        self._python = python
        self._known: dict[str, Owner] = {}

    def owner(self, path: str) -> Owner:
        known = self._known.get(path)
        if known is None:
            known = self._known[path] = self._classify(path)
        return known

    def _classify(self, path: str) -> Owner:
        if not path or path.startswith("<"):
            # <frozen runpy>, <string>: nobody can open that line
            return Owner.STDLIB
        if any(part + _SCENARIOS in path for part in _PACKAGE_PARTS):
            return Owner.USER
        if self._python is not None:
            if _below(path, self._python.own):
                return Owner.RECORDER
            if self._python.torch and _below(path, [self._python.torch]):
                return Owner.TORCH
            if _below(path, self._python.site):
                return self._package(path)
            if _below(path, self._python.stdlib):
                return Owner.STDLIB
        if any(part in path for part in _PACKAGE_PARTS):
            return self._package(path)
        if _IN_RANKS in path:
            return Owner.RECORDER
        if _in_standard_library(path):
            return Owner.STDLIB
        return Owner.USER

    @staticmethod
    def _package(path: str) -> Owner:
        for part in _PACKAGE_PARTS:
            _, found, tail = path.rpartition(part)
            if found:
                name = tail.split("/", 1)[0]
                if name in ("torch", "torchgen", "functorch"):
                    return Owner.TORCH
                if name == "hanglab":
                    return Owner.RECORDER
        return Owner.PACKAGE

    def user_frames(self, frames: Iterable[F]) -> list[F]:
        """The user's frames, innermost first; where there is none, those of packages."""
        frames = list(frames)
        mine = [frame for frame in frames if self.owner(frame.file) is Owner.USER]
        if mine:
            return mine
        return [frame for frame in frames if self.owner(frame.file) is Owner.PACKAGE]

    def innermost_user(self, frames: Sequence[F]) -> F | None:
        mine = self.user_frames(frames)
        return mine[0] if mine else None
