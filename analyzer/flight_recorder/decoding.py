"""Decodes pickles that hold data only, and salvages what stands before a damage.

C's unpickler is fast but gives nothing of a damaged file and can be made to ask
for any amount of memory.  This decoder knows only the opcodes that build plain
data, keeps the memo in a dict, reads no further than the bytes that are there,
and closes what is still open where the damage begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hanglab.analyzer.flight_recorder.errors import DumpError, RefusedDump
from hanglab.analyzer.flight_recorder.pickle_machine import (
    CODE,
    KEY_TYPES,
    OPCODES,
    Damage,
    PickleMachine,
    Stop,
)


@dataclass
class Decoded:
    """``value`` is the outermost object; ``damage`` says where decoding ended, "" if whole."""

    value: Any
    damage: str = ""


def decode_pickle(data: bytes) -> Decoded:
    """The plain data in a pickle, up to its end or to where it is damaged.

    Time and memory are linear in ``len(data)``.  Containers that are open where
    the damage begins are kept only if they are the outermost one or stand
    directly in it: an entry of which a part is missing is none.  Raises
    RefusedDump where an opcode would import or call something, and DumpError
    where nothing precedes the damage.
    """
    m = PickleMachine(data)
    damage = ""
    start = 0
    try:
        while True:
            start = m.pos
            if start >= len(data):
                raise Damage("ends too early")
            opcode = data[start]
            m.pos = start + 1
            handler = OPCODES.get(opcode)
            if handler is None:
                if opcode in CODE:
                    raise RefusedDump(f"{CODE[opcode]} at byte {start}")
                raise Damage("holds an unknown opcode")
            handler(m)
    except Stop:
        if len(m.stack) != 1 or m.below:
            damage = f"ends with values left over, at byte {start}"
    except Damage as reason:
        damage = f"{reason}, at byte {start} of {len(data)}"
    value = _close(m)
    if value is None:
        raise DumpError(f"not a dump: {damage or 'an empty pickle'}")
    return Decoded(value, damage)


def _close(m: PickleMachine) -> Any:
    """The outermost object, with the open containers of the two outer levels closed."""
    levels = [*m.below, m.stack]
    partial: Any = None
    for depth in range(len(levels) - 1, 0, -1):
        items = levels[depth]
        if partial is not None and depth <= 1:
            items = [*items, partial]
        owner = levels[depth - 1].pop() if levels[depth - 1] else None
        partial = None
        if depth > 2 or not isinstance(owner, (list, dict)):
            continue
        if isinstance(owner, list):
            owner.extend(items)
        else:
            pairs = zip(items[::2], items[1::2], strict=False)
            owner.update((k, v) for k, v in pairs if type(k) in KEY_TYPES)
        partial = owner
    if partial is not None:
        return partial
    return levels[0][0] if levels[0] else None
