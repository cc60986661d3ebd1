"""The extent and the loops of the code on this process's stacks, for ``code.json``.

Of the user's code and of packages' (a trainer's loop), not of torch's and Python's own.

Of a loop that counts with an integer, the integer is kept as well; of all other
variables nothing is looked at.  Standard library only: this runs inside ranks.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple

from hanglab.recorder.rank.thread_frames import steady_frames


class LoopLines(NamedTuple):
    first: int
    last: int
    #: Names that the loop assigns on each turn, in order.
    targets: tuple[str, ...]


_STORES = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF")


def _line_at(code: CodeType) -> dict[int, int]:
    return {
        offset: line
        for start, end, line in code.co_lines()
        if line is not None
        for offset in range(start, end, 2)
    }


def _targets(instructions: list[dis.Instruction], start: int) -> tuple[str, ...]:
    """Names stored right behind the FOR_ITER at index ``start``."""
    names: list[str] = []
    for instruction in instructions[start + 1 :]:
        if instruction.opname in ("UNPACK_SEQUENCE", "UNPACK_EX", "CACHE", "NOP", "EXTENDED_ARG"):
            continue
        if instruction.opname == "STORE_FAST_STORE_FAST" and isinstance(instruction.argval, tuple):
            names += [str(name) for name in instruction.argval]
        elif instruction.opname == "STORE_FAST_LOAD_FAST" and isinstance(instruction.argval, tuple):
            names.append(str(instruction.argval[0]))
            break
        elif instruction.opname in _STORES:
            names.append(str(instruction.argval))
        else:
            break
    return tuple(names)


def loops_of(code: CodeType) -> list[LoopLines]:
    """Loops of one code object, outermost first: the lines that its backward jumps span."""
    line_at = _line_at(code)
    instructions = list(dis.get_instructions(code))
    place = {instruction.offset: i for i, instruction in enumerate(instructions)}
    found: dict[int, LoopLines] = {}
    for instruction in instructions:
        if instruction.opcode not in dis.hasjrel and instruction.opcode not in dis.hasjabs:
            continue
        target = instruction.argval
        if not isinstance(target, int) or target >= instruction.offset:
            continue
        body = [line for offset, line in line_at.items() if target <= offset <= instruction.offset]
        if not body:
            continue
        head = place.get(target)
        while head is not None and instructions[head].opname == "EXTENDED_ARG":
            head += 1  # what a long body puts before its loop's own instruction
        targets: tuple[str, ...] = ()
        if head is not None and instructions[head].opname == "FOR_ITER":
            targets = _targets(instructions, head)
        earlier = found.get(target)
        last = max([max(body), *([earlier.last] if earlier else [])])
        found[target] = LoopLines(min(body), last, targets)
    return sorted(found.values(), key=lambda loop: (loop.first, -loop.last))


def _counter(loop: LoopLines, frame: FrameType) -> int | None:
    for name in loop.targets:
        with steady_frames:
            value = frame.f_locals.get(name)
        if type(value) is int:
            return value
    return None


def _shape(frame: FrameType) -> dict[str, Any]:
    code = frame.f_code
    return {
        "file": code.co_filename,
        "function": code.co_name,
        "first_line": code.co_firstlineno,
        "last_line": max(_line_at(code).values(), default=code.co_firstlineno),
        "loops": [
            {"first": loop.first, "last": loop.last, "counter": _counter(loop, frame)}
            for loop in loops_of(code)
        ],
    }


def standing_code(is_program: Callable[[str], bool]) -> list[dict[str, Any]]:
    """Shapes of the program's code on the stacks of this process's threads, each once."""
    frames: list[FrameType] = []
    with steady_frames:
        for top in list(sys._current_frames().values()):
            at: FrameType | None = top
            while at is not None:
                frames.append(at)
                at = at.f_back
    return _shapes(frames, is_program)


def raised_code(
    traceback: TracebackType | None, is_program: Callable[[str], bool]
) -> list[dict[str, Any]]:
    """Shapes of the program's code on a traceback, each once."""
    frames: list[FrameType] = []
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return _shapes(frames[::-1], is_program)


def _shapes(frames: list[FrameType], is_program: Callable[[str], bool]) -> list[dict[str, Any]]:
    shapes: dict[CodeType, dict[str, Any]] = {}
    for frame in frames:
        code = frame.f_code
        if code not in shapes and is_program(code.co_filename):
            shapes[code] = _shape(frame)
    return list(shapes.values())
