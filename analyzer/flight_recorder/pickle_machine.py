"""The opcodes of pickle that build plain data, on a machine that knows no others."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

#: Opcodes that import, call or construct something.
CODE = {
    ord("c"): "GLOBAL",
    ord("i"): "INST",
    ord("o"): "OBJ",
    ord("R"): "REDUCE",
    ord("b"): "BUILD",
    ord("P"): "PERSID",
    ord("Q"): "BINPERSID",
    0x81: "NEWOBJ",
    0x82: "EXT1",
    0x83: "EXT2",
    0x84: "EXT4",
    0x92: "NEWOBJ_EX",
    0x93: "STACK_GLOBAL",
    0x97: "NEXT_BUFFER",
    0x98: "READONLY_BUFFER",
}
#: An integer of more bytes is no count, time or size.
_LONGEST_INT = 64
KEY_TYPES = frozenset({str, int, bool, float, bytes, type(None)})


class Damage(Exception):
    """The bytes stop making sense at the current opcode."""


class Stop(Exception):
    """The pickle's regular end."""


@dataclass
class PickleMachine:
    data: bytes
    pos: int = 0
    stack: list[Any] = field(default_factory=list)
    #: Stacks below each open MARK.
    below: list[list[Any]] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def take(self, count: int) -> bytes:
        end = self.pos + count
        if count < 0 or end > len(self.data):
            raise Damage("ends in the middle of a value")
        piece = self.data[self.pos : end]
        self.pos = end
        return piece

    def line(self) -> bytes:
        end = self.data.find(b"\n", self.pos, self.pos + 4096)
        if end < 0:
            raise Damage("holds a line without an end")
        piece = self.data[self.pos : end]
        self.pos = end + 1
        return piece

    def pop(self) -> Any:
        if not self.stack:
            raise Damage("takes a value where there is none")
        return self.stack.pop()

    def since_mark(self) -> list[Any]:
        if not self.below:
            raise Damage("closes what was never opened")
        items = self.stack
        self.stack = self.below.pop()
        return items

    def top(self, kind: type) -> Any:
        if not self.stack or type(self.stack[-1]) is not kind:
            raise Damage(f"adds to something that is no {kind.__name__}")
        return self.stack[-1]

    def text(self, count: int) -> None:
        self.stack.append(self.take(count).decode("utf-8", "replace"))


def _set(target: dict[Any, Any], items: list[Any]) -> None:
    if len(items) % 2:
        raise Damage("holds a key without a value")
    for key in items[::2]:
        # Tuples as keys would be hashed in C without a limit on depth.
        if type(key) not in KEY_TYPES:
            raise Damage(f"uses a {type(key).__name__} as a key")
    target.update(zip(items[::2], items[1::2], strict=True))


def _unsigned(count: int) -> Callable[[PickleMachine], int]:
    def read(m: PickleMachine) -> int:
        return int.from_bytes(m.take(count), "little")

    return read


_u1, _u2, _u4, _u8 = _unsigned(1), _unsigned(2), _unsigned(4), _unsigned(8)


def _long(m: PickleMachine, count: int) -> None:
    if count > _LONGEST_INT:
        raise Damage(f"holds an integer of {count} bytes")
    m.stack.append(int.from_bytes(m.take(count), "little", signed=True))


def _number(m: PickleMachine, kind: Callable[[bytes], Any]) -> None:
    text = m.line()
    if len(text) > 3 * _LONGEST_INT:
        raise Damage("holds a number of too many digits")
    try:
        m.stack.append(kind(text))
    except ValueError:
        raise Damage("holds a number that is none") from None


def _int_line(text: bytes) -> int | bool:
    if text in (b"00", b"01"):
        return text == b"01"
    return int(text.rstrip(b"L"))


def _string_line(m: PickleMachine) -> None:
    text = m.line().strip()
    if len(text) < 2 or text[:1] != text[-1:] or text[:1] not in b"'\"":
        raise Damage("holds a string without quotes")
    m.stack.append(text[1:-1].decode("ascii", "backslashreplace"))


def _memo_index(m: PickleMachine) -> int:
    try:
        return int(m.line())
    except ValueError:
        raise Damage("holds a memo index that is no number") from None


def _put(m: PickleMachine, index: int) -> None:
    if not m.stack:
        raise Damage("remembers a value where there is none")
    m.memo[index] = m.stack[-1]


def _get(m: PickleMachine, index: int) -> None:
    if index not in m.memo:
        raise Damage("refers to a value that was never remembered")
    m.stack.append(m.memo[index])


def _mark(m: PickleMachine) -> None:
    m.below.append(m.stack)
    m.stack = []


def _pop(m: PickleMachine) -> None:
    if m.stack:
        m.stack.pop()
    else:
        m.since_mark()


def _appends(m: PickleMachine) -> None:
    items = m.since_mark()
    m.top(list).extend(items)


def _append(m: PickleMachine) -> None:
    item = m.pop()
    m.top(list).append(item)


def _setitems(m: PickleMachine) -> None:
    items = m.since_mark()
    _set(m.top(dict), items)


def _setitem(m: PickleMachine) -> None:
    value, key = m.pop(), m.pop()
    _set(m.top(dict), [key, value])


def _dict(m: PickleMachine) -> None:
    made: dict[Any, Any] = {}
    _set(made, m.since_mark())
    m.stack.append(made)


def _list(m: PickleMachine) -> None:
    items = m.since_mark()
    m.stack.append(items)


def _tuple(m: PickleMachine) -> None:
    items = m.since_mark()
    m.stack.append(tuple(items))


def _tuple_of(count: int) -> Callable[[PickleMachine], None]:
    def make(m: PickleMachine) -> None:
        items = [m.pop() for _ in range(count)]
        m.stack.append(tuple(reversed(items)))

    return make


def _constant(value: Any) -> Callable[[PickleMachine], None]:
    return lambda m: m.stack.append(value)


def _stop(m: PickleMachine) -> None:
    raise Stop


OPCODES: dict[int, Callable[[PickleMachine], Any]] = {
    0x80: lambda m: m.take(1),  # PROTO
    0x95: lambda m: m.take(8),  # FRAME: its length bounds nothing here
    ord("."): _stop,
    ord("("): _mark,
    ord("0"): _pop,
    ord("1"): lambda m: m.since_mark(),
    ord("2"): lambda m: m.stack.append(m.top(type(m.stack[-1]) if m.stack else list)),
    ord("N"): _constant(None),
    0x88: _constant(True),
    0x89: _constant(False),
    ord("K"): lambda m: m.stack.append(_u1(m)),
    ord("M"): lambda m: m.stack.append(_u2(m)),
    ord("J"): lambda m: m.stack.append(int.from_bytes(m.take(4), "little", signed=True)),
    0x8A: lambda m: _long(m, _u1(m)),
    0x8B: lambda m: _long(m, _u4(m)),
    ord("I"): lambda m: _number(m, _int_line),
    ord("L"): lambda m: _number(m, _int_line),
    ord("F"): lambda m: _number(m, float),
    ord("G"): lambda m: m.stack.append(struct.unpack(">d", m.take(8))[0]),
    ord("X"): lambda m: m.text(_u4(m)),
    0x8C: lambda m: m.text(_u1(m)),
    0x8D: lambda m: m.text(_u8(m)),
    ord("V"): lambda m: m.stack.append(m.line().decode("raw-unicode-escape", "replace")),
    ord("S"): _string_line,
    ord("U"): lambda m: m.stack.append(m.take(_u1(m)).decode("utf-8", "replace")),
    ord("T"): lambda m: m.stack.append(m.take(_u4(m)).decode("utf-8", "replace")),
    ord("C"): lambda m: m.stack.append(m.take(_u1(m))),
    ord("B"): lambda m: m.stack.append(m.take(_u4(m))),
    0x8E: lambda m: m.stack.append(m.take(_u8(m))),
    ord("}"): lambda m: m.stack.append({}),
    ord("]"): lambda m: m.stack.append([]),
    ord(")"): lambda m: m.stack.append(()),
    ord("d"): _dict,
    ord("l"): _list,
    ord("t"): _tuple,
    0x85: _tuple_of(1),
    0x86: _tuple_of(2),
    0x87: _tuple_of(3),
    ord("a"): _append,
    ord("e"): _appends,
    ord("s"): _setitem,
    ord("u"): _setitems,
    ord("q"): lambda m: _put(m, _u1(m)),
    ord("r"): lambda m: _put(m, _u4(m)),
    ord("p"): lambda m: _put(m, _memo_index(m)),
    0x94: lambda m: _put(m, len(m.memo)),
    ord("h"): lambda m: _get(m, _u1(m)),
    ord("j"): lambda m: _get(m, _u4(m)),
    ord("g"): lambda m: _get(m, _memo_index(m)),
}
