"""The extent and the loops of the user code on this process's stacks, for ``code.json``.

Standard library only: this runs inside ranks.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from types import CodeType, FrameType


def shape_of(code: CodeType) -> dict[str, object]:
    """Extent and loops of one code object, from the lines that its backward jumps span."""
    line_at: dict[int, int] = {}
    for start, end, line in code.co_lines():
        if line is not None:
            for offset in range(start, end, 2):
                line_at[offset] = line
    lines = set(line_at.values()) or {code.co_firstlineno}
    loops: dict[int, int] = {}
    for instruction in dis.get_instructions(code):
        if instruction.opcode not in dis.hasjrel and instruction.opcode not in dis.hasjabs:
            continue
        target = instruction.argval
        if not isinstance(target, int) or target >= instruction.offset:
            continue
        body = [line for offset, line in line_at.items() if target <= offset <= instruction.offset]
        if body:
            first = min(body)
            loops[first] = max(loops.get(first, first), max(body))
    return {
        "file": code.co_filename,
        "function": code.co_name,
        "first_line": code.co_firstlineno,
        "last_line": max(lines),
        "loops": sorted(loops.items(), key=lambda loop: (loop[0], -loop[1])),
    }


def standing_code(is_user: Callable[[str], bool]) -> list[dict[str, object]]:
    """Shapes of all user code on the stacks of this process's threads, each once."""
    shapes: dict[CodeType, dict[str, object]] = {}
    for frame in list(sys._current_frames().values()):
        at: FrameType | None = frame
        while at is not None:
            code = at.f_code
            if code not in shapes and is_user(code.co_filename):
                shapes[code] = shape_of(code)
            at = at.f_back
    return list(shapes.values())
