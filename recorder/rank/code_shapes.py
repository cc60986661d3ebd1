"""The extent, loops and order of the code on this process's stacks, for ``code.json``.

Of the user's code and of packages' (a trainer's loop), not of torch's and Python's own.

Of a loop whose variable is an integer that is kept as well, and whether it is sure to count: the
loop goes over ``range``, ``enumerate`` or ``itertools.count``, also within a call such as
``tqdm(range(n))``.  Of all other variables nothing is looked at.  Standard library only: this runs
inside ranks.
"""

from __future__ import annotations

import dis
import signal
import sys
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple

from hanglab.recorder.rank.thread_frames import steady_frames


class LoopLines(NamedTuple):
    first: int
    last: int
    #: Names that the loop alone assigns on each turn, in order.
    targets: tuple[str, ...]
    #: Offset of its first instruction, behind those that make what it goes over.
    start: int
    #: It goes over what counts; else an integer may be anything, such as a length.
    counts: bool


class Block(NamedTuple):
    """Lines that follow each other, and the numbers of the later blocks that may follow them."""

    lines: list[int]
    next: list[int]


#: Some thousand lines in one function, of which 64 KiB of JSON would tell.
MOST_BLOCKS = 2000

#: What counts: builtins, and ``count`` of itertools, also where it was imported by itself.
_COUNTERS = frozenset({"range", "enumerate", "count"})
_STORES = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF")


def _line_at(code: CodeType) -> dict[int, int]:
    return {
        offset: line
        for start, end, line in code.co_lines()
        if line is not None
        for offset in range(start, end, 2)
    }


def _targets(instructions: list[dis.Instruction], start: int) -> tuple[tuple[str, ...], int]:
    """Names stored right behind the FOR_ITER at index ``start``, and the index behind that."""
    names: list[str] = []
    for at, instruction in enumerate(instructions[start + 1 :], start + 1):
        if instruction.opname in ("UNPACK_SEQUENCE", "UNPACK_EX", "CACHE", "NOP", "EXTENDED_ARG"):
            continue
        stored = _stored(instruction)
        names += stored
        if not stored or instruction.opname == "STORE_FAST_LOAD_FAST":
            return tuple(names), at + bool(stored)
    return tuple(names), len(instructions)


def _stored(instruction: dis.Instruction) -> tuple[str, ...]:
    """Names to which an instruction gives a value."""
    name, value = instruction.opname, instruction.argval
    if name == "STORE_FAST_STORE_FAST" and isinstance(value, tuple):
        return tuple(map(str, value))
    if name == "STORE_FAST_LOAD_FAST" and isinstance(value, tuple):
        return (str(value[0]),)
    return (str(value),) if name in _STORES else ()


def _counts(instructions: list[dis.Instruction], start: int) -> bool:
    """True if what the loop of the FOR_ITER at index ``start`` goes over is made by a counter."""
    depth, attribute = 0, ""
    for instruction in reversed(instructions[:start]):
        name = instruction.opname
        if name in ("GET_ITER", "CACHE", "NOP", "EXTENDED_ARG"):
            continue
        if name in ("LOAD_GLOBAL", "LOAD_NAME"):
            of_itertools = (instruction.argval, attribute) == ("itertools", "count")
            if of_itertools or instruction.argval in _COUNTERS:
                return True
        attribute = instruction.argval if name in ("LOAD_ATTR", "LOAD_METHOD") else ""
        depth += dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
        if depth > 0:
            return False  # the whole expression has been read
    return False


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
        counts = False
        if head is not None and instructions[head].opname == "FOR_ITER":
            names, body_at = _targets(instructions, head)
            # What its body gives a value as well, as an inner loop over ``_`` does, is no counter.
            within = instructions[body_at : place[instruction.offset]]
            given = {name for one in within for name in _stored(one)}
            targets = tuple(name for name in names if name not in given)
            counts = _counts(instructions, head)
        earlier = found.get(target)
        last = max([max(body), *([earlier.last] if earlier else [])])
        found[target] = LoopLines(min(body), last, targets, target, counts)
    return sorted(found.values(), key=lambda loop: (loop.first, -loop.last))


def blocks_of(code: CodeType) -> list[Block]:
    """Basic blocks of one code object, in the order of their instructions; [] for a huge one.

    Ways that exceptions take are left out.
    """
    line_at = _line_at(code)
    instructions = list(dis.get_instructions(code))
    heads = {one.offset: one for one in instructions if one.opname == "FOR_ITER"}
    starts = {0}
    for one, following in zip(instructions, [*instructions[1:], None], strict=True):
        target = _jump(one)
        if target is not None:
            starts.add(target)
        if following is not None and (target is not None or _ends(one)):
            starts.add(following.offset)
    order = sorted(starts)
    if len(order) > MOST_BLOCKS:
        return []
    place = {offset: i for i, offset in enumerate(order)}
    blocks = [Block([], []) for _ in order]
    at = 0
    for i, one in enumerate(instructions):
        at = place.get(one.offset, at)
        block = blocks[at]
        line = line_at.get(one.offset)
        if line is not None and block.lines[-1:] != [line]:
            block.lines.append(line)
        target = _jump(one)
        if target is not None and target <= one.offset and target in heads:
            # A loop's last turn goes on behind it.
            target = _jump(heads[target])
        nexts = [target] if target is not None and target > one.offset else []
        if i + 1 < len(instructions) and instructions[i + 1].offset in place and not _ends(one):
            nexts.append(instructions[i + 1].offset)
        block.next.extend(place[offset] for offset in nexts if place[offset] not in block.next)
    return blocks


def _jump(instruction: dis.Instruction) -> int | None:
    """Offset to which an instruction may jump."""
    jumps = instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs
    # In Python 3.10 such a one names the handler of exceptions.
    if not jumps or instruction.opname.startswith("SETUP_"):
        return None
    return instruction.argval if isinstance(instruction.argval, int) else None


def _ends(instruction: dis.Instruction) -> bool:
    """True if the next instruction does not follow."""
    name = instruction.opname
    return name.startswith(("RETURN", "RAISE", "RERAISE")) or (
        name.startswith("JUMP_") and "_IF_" not in name
    )


def _counter(loop: LoopLines, frame: FrameType) -> int | None:
    """The integer that the loop gives its variable; None without one, or before the loop.

    There the name has what is left of the loop when the frame came by it before.
    """
    if frame.f_lasti < loop.start:
        return None
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
            {
                "first": loop.first,
                "last": loop.last,
                "counter": _counter(loop, frame),
                "counts": loop.counts,
            }
            for loop in loops_of(code)
        ],
        "blocks": blocks_of(code),
        "signals": _handled_by(code),
    }


def _handled_by(code: CodeType) -> list[str]:
    """Names of the signals whose handler is a function of that code."""
    handlers = {one: signal.getsignal(one) for one in signal.valid_signals()}
    return [
        one.name
        for one, handler in handlers.items()
        if isinstance(one, signal.Signals) and getattr(handler, "__code__", None) is code
    ]


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
