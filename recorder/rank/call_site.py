"""Finding the line of user code that a call came from."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FrameType

#: Code objects remembered; a program that makes code as it runs would fill the memory.
_LIMIT = 20_000


class CallSites:
    """Remembers of each code object whether it is the user's, and its texts' numbers."""

    def __init__(self, user_code: Callable[[str], bool], text: Callable[[str], int]) -> None:
        self._user_code = user_code
        self._text = text
        # By id, as hashing a code object takes longer than all the rest.  The
        # code object is kept, so that its id is not given to another.
        self._known: dict[int, tuple[CodeType, bool, int, int]] = {}

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
            if entry[1]:
                return entry[2], entry[3], frame.f_lineno
            frame = frame.f_back
        return 0, 0, 0

    def _look_at(self, code: CodeType) -> tuple[CodeType, bool, int, int]:
        user = self._user_code(code.co_filename)
        entry = (
            code,
            user,
            self._text(code.co_filename) if user else 0,
            self._text(code.co_name) if user else 0,
        )
        if len(self._known) < _LIMIT:
            self._known[id(code)] = entry
        return entry
