"""Samples of the lines of user code at which the rank spends its time.

A job that moves leaves no stack behind.  The recorder's thread looks at the
main thread now and then and counts the innermost line of user code, with what
it had called: a communication, the data loader, or anything else.  The
loader itself calls the user's code where it has no workers.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import FrameType

from hanglab.recorder.rank import store_keys
from hanglab.recorder.rank.thread_frames import line_number, steady_frames

#: Lines kept; a program that makes code as it runs would fill the memory.
_LIMIT = 4096
_BELOW = {
    "torch/distributed/distributed_c10d.py": "communication",
    store_keys.__file__: "communication",
    "torch/utils/data/dataloader.py": "input",
}


class LineSampler:
    """Counts (file, function, line, what it had called, section) of the main thread."""

    def __init__(self, is_user: Callable[[str], bool], section_of: Callable[[int], str]) -> None:
        """``section_of(thread)`` names the innermost section that is open on it."""
        self._is_user = is_user
        self._section_of = section_of
        self._main = threading.main_thread().ident or 0
        self._counts: Counter[tuple[str, str, int, str, str, str]] = Counter()

    def look(self) -> None:
        with steady_frames:
            self._look()

    def _look(self) -> None:
        frame: FrameType | None = sys._current_frames().get(self._main)
        below = ""
        while frame is not None:
            code = frame.f_code
            if self._is_user(code.co_filename):
                line = line_number(frame)
                within = "input" if _called_by_loader(frame) else ""
                section = self._section_of(self._main)
                key = (code.co_filename, code.co_name, line, below, within, section)
                if key in self._counts or len(self._counts) < _LIMIT:
                    self._counts[key] += 1
                return
            # A module that is being imported does nothing yet.
            if not below and code.co_name != "<module>":
                for file, kind in _BELOW.items():
                    if code.co_filename.endswith(file):
                        below = kind
            frame = frame.f_back

    def rows(self) -> list[dict[str, object]]:
        """Rows of records.LineCount, most frequent first."""
        return [
            {
                "file": file,
                "function": function,
                "line": line,
                "below": below,
                "within": within,
                "section": section,
                "count": count,
            }
            for (file, function, line, below, within, section), count in self._counts.most_common()
        ]


def _called_by_loader(frame: FrameType | None) -> bool:
    """True if the data loader makes its batches in this very thread, out of the user's code."""
    while frame is not None:
        if frame.f_code.co_filename.endswith("torch/utils/data/dataloader.py"):
            return frame.f_code.co_name != "<module>"
        frame = frame.f_back
    return False
