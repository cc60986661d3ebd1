"""Finding the line of user code that a call came from."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FrameType

#: Code objects remembered; a program that makes code as it runs would fill the memory.
_LIMIT = 20_000


class CallSite:
    """A line of code: numbers of the texts of its file and function; 0s where there is none.

    Equal to itself alone, so that it is cheap to look up by.
    """

    __slots__ = ("file", "function", "line")

    def __init__(self, file: int, function: int, line: int) -> None:
        self.file = file
        self.function = function
        self.line = line


NOWHERE = CallSite(0, 0, 0)


class CallSites:
    """Remembers of each code object whether it is the user's, and where in it calls stand."""

    def __init__(self, user_code: Callable[[str], bool], text: Callable[[str], int]) -> None:
        self._user_code = user_code
        self._text = text
        #: By id of the code, as hashing one takes longer than all the rest: call sites by
        #: instruction, as to have a line looked up takes longer the further down in its
        #: function it stands; None for code that is not the user's.
        self.known: dict[int, dict[int, CallSite] | None] = {}
        #: The code objects, so that their ids are not given to others.
        self._code: list[CodeType] = []

    def find(self, frame: FrameType | None) -> CallSite:
        """The innermost frame of user code, NOWHERE if there is none."""
        known = self.known
        while frame is not None:
            code = frame.f_code
            sites = known[id(code)] if id(code) in known else self._look_at(code)
            if sites is not None:
                at = frame.f_lasti
                site = sites.get(at)
                if site is None:
                    text = self._text
                    site = CallSite(text(code.co_filename), text(code.co_name), frame.f_lineno or 0)
                    sites[at] = site
                return site
            frame = frame.f_back
        return NOWHERE

    def _look_at(self, code: CodeType) -> dict[int, CallSite] | None:
        sites: dict[int, CallSite] | None = {} if self._user_code(code.co_filename) else None
        if len(self._code) < _LIMIT:
            self._code.append(code)
            self.known[id(code)] = sites
        return sites
