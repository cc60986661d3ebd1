"""Noticing that the main thread has gone on to other functions of the user's code.

The agent's own look at the stack, from outside, is too dear to be taken often:
of two functions that take turns, a few samples may well catch the same one.
"""

from __future__ import annotations

import opcode
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType

from hanglab.recorder.case.layout import Slot
from hanglab.recorder.rank.progress_file import ProgressFile
from hanglab.recorder.rank.thread_frames import steady_frames

#: Where a loop begins anew: native code is called by other instructions.  (The conditional jump
#: back that some versions of Python have asks a value whether it is true, which may be one.)
_BACK = {opcode.opmap.get(name) for name in ("JUMP_BACKWARD", "JUMP_ABSOLUTE")}


class FunctionChanges:
    """Writes to the progress file when the user functions on the main stack were seen to change.

    Lines do not count, so a loop that only spins stands still.
    """

    def __init__(self, progress: ProgressFile, user_code: Callable[[str], bool]) -> None:
        self._slots = progress.slots
        self._user_code = user_code
        self._main = threading.main_thread().ident or 0
        self._seen: list[CodeType] = []
        self._instruction: tuple[CodeType, int] | None = None

    def look(self) -> None:
        frames: list[FrameType] = []
        with steady_frames:
            frame: FrameType | None = sys._current_frames().get(self._main)
            at = (frame.f_code, frame.f_lasti) if frame is not None else None
            while frame is not None:
                frames.append(frame)
                frame = frame.f_back
        standing = [f.f_code for f in frames if self._user_code(f.f_code.co_filename)]
        # Two functions of equal text are equal code; that they differ hardly matters.
        if standing != self._seen:
            self._seen = standing
            self._slots[Slot.STANDING_CHANGES] += 1
        elif at != self._instruction or (at is not None and _jumps_back(*at)):
            # A loop that spins comes by here often, one call into native code never.
            self._slots[Slot.INSTRUCTION_CHANGES] += 1
        self._instruction = at


def _jumps_back(code: CodeType, instruction: int) -> bool:
    """True if a thread that was seen there runs Python: the tightest loops are always seen so.

    A thread gives the interpreter's lock away where a loop begins anew.
    """
    return 0 <= instruction < len(code.co_code) and code.co_code[instruction] in _BACK
