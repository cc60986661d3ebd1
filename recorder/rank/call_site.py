"""Finding the line of user code that a call came from."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FrameType

#: Code objects remembered; a program that makes code as it runs would fill the memory.
_LIMIT = 20_000
#: The code, its file's and function's texts, and lines by instruction; None if it is not the
#: user's.
_Known = tuple[CodeType, int, int, "dict[int, int] | None"]


class CallSites:
    """Remembers of each code object whether it is the user's, and its texts' numbers."""

    def __init__(self, user_code: Callable[[str], bool], text: Callable[[str], int]) -> None:
        self._user_code = user_code
        self._text = text
        # By id, as hashing a code object takes longer than all the rest.  The
        # code object is kept, so that its id is not given to another.
        # Lines are kept by instruction: to have one looked up takes longer the further
        # down in its function it stands.
        self._known: dict[int, _Known] = {}

    def find(self, frame: FrameType | None) -> tuple[int, int, int]:
        """(file, function, line) of the innermost frame of user code; 0s if there is none.

        File and function are numbers of texts.
        """
        known = self._known
        while frame is not None:
            code = frame.f_code
            entry = known.get(id(code))
            if entry is None:
                entry = self._look_at(code)
            lines = entry[3]
            if lines is not None:
                at = frame.f_lasti
                line = lines.get(at)
                if line is None:
                    line = lines[at] = frame.f_lineno or 0
                return entry[1], entry[2], line
            frame = frame.f_back
        return 0, 0, 0

    def _look_at(self, code: CodeType) -> _Known:
        entry: _Known
        if self._user_code(code.co_filename):
            entry = code, self._text(code.co_filename), self._text(code.co_name), {}
        else:
            entry = code, 0, 0, None
        if len(self._known) < _LIMIT:
            self._known[id(code)] = entry
        return entry
