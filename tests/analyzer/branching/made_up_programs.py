"""Python programs made up at random, run for two ranks, with what each did line by line.

The programs are run by Python itself: nothing here knows of graphs of statements.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from types import FrameType
from typing import Any

from hanglab.recorder.case.branch_trace import BranchPlace, TakenBranch
from hanglab.recorder.rank.branches.instrumentation import TAKEN, instrumented

#: Lines that a run may pass, so that every program ends.
_MOST_LINES = 400


class _OutOfLines(BaseException):
    """The run has passed enough lines."""


@dataclass(frozen=True)
class Event:
    """A line that a rank came to, or a call there that communicates."""

    line: int
    communicates: bool
    #: Lines of the calls around it, outermost first, and its own.
    chain: tuple[tuple[str, int], ...]


@dataclass
class Run:
    """The events of a rank; ``ended`` is false where it was stopped on its way."""

    events: list[Event]
    ended: bool
    #: Branches by the recorder's own calls; the time is twice the number of events before.
    branches: list[TakenBranch] = field(default_factory=list)
    #: The line that asked the question whose answer was turned.
    odd_line: int | None = None


class _Writer:
    """Writes statements at random."""

    def __init__(self, random: Random, helpers: int) -> None:
        self._random = random
        self._helpers = helpers
        self._lines: list[str] = []
        self._conditions = 0

    def function(self, name: str, helpers: int) -> list[str]:
        self._helpers = helpers
        self._lines = [f"def {name}(op, want, raises):"]
        self._block(1, 3, in_loop=False)
        return self._lines

    def _add(self, depth: int, text: str) -> None:
        self._lines.append("    " * depth + text)

    def _want(self) -> str:
        self._conditions += 1
        return f"want({self._random.randrange(12)})"

    def _block(self, depth: int, budget: int, in_loop: bool) -> None:
        for _ in range(self._random.randint(1, 3)):
            self._statement(depth, budget, in_loop)

    def _statement(self, depth: int, budget: int, in_loop: bool) -> None:
        kinds = ["op", "op", "plain", "call", "maybe", "each", "leave"]
        if budget:
            kinds += ["if", "if", "if", "else", "for", "while", "try", "finally"]
        kind = self._random.choice(kinds)
        inner = depth + 1
        if kind == "op":
            self._add(depth, "op()")
        elif kind == "plain":
            self._add(depth, "raises()" if self._random.random() < 0.3 else "x = 1")
        elif kind == "call":
            if self._helpers:
                self._add(
                    depth, f"helper_{self._random.randrange(self._helpers)}(op, want, raises)"
                )
            else:
                self._add(depth, "x = 2")
        elif kind == "maybe":
            self._add(depth, f"flag = {self._want()}")
            self._add(depth, "flag and op()")
        elif kind == "each":
            self._add(depth, f"flag = {self._want()}")
            self._add(depth, "x = [op() for _ in (1,) * flag]")
        elif kind == "leave":
            self._add(depth, f"if {self._want()}:")
            choices = ["return", *(["break", "continue"] if in_loop else [])]
            self._add(inner, self._random.choice(choices))
        elif kind in ("if", "else"):
            self._add(depth, f"if {self._want()}:")
            self._block(inner, budget - 1, in_loop)
            if kind == "else":
                self._add(depth, "else:")
                self._block(inner, budget - 1, in_loop)
        elif kind == "for":
            self._add(depth, f"for _ in range(2 + {self._want()}):")
            self._block(inner, budget - 1, True)
        elif kind == "while":
            self._add(depth, f"while {self._want()}:")
            self._block(inner, budget - 1, True)
        elif kind == "try":
            self._add(depth, "try:")
            self._block(inner, budget - 1, in_loop)
            self._add(depth, "except ValueError:")
            self._block(inner, budget - 1, in_loop)
        else:
            self._add(depth, "try:")
            self._block(inner, budget - 1, in_loop)
            self._add(depth, "finally:")
            self._add(inner, "x = 3" if self._random.random() < 0.5 else "op()")


def make_up(seed: int) -> str:
    """The text of a program: some functions and a loop of the main one's."""
    random = Random(seed)
    helpers = random.randrange(3)
    writer = _Writer(random, helpers)
    lines: list[str] = []
    for number in range(helpers):
        lines += writer.function(f"helper_{number}", number)
    lines += writer.function("step", helpers)
    lines += [
        "def main(op, want, raises):",
        "    for _ in range(6):",
        "        op()",
        "        step(op, want, raises)",
    ]
    return "\n".join(lines) + "\n"


def run(
    text: str, file: str, seed: int, odd_at: int, odd_raises: bool, recorded: bool = False
) -> Run:
    """Run a program: ``seed`` gives the answers to its questions, the one of ``odd_at`` is turned.

    With ``recorded`` its branches are kept.  Two runs of one seed do the same until that question,
    or until ``raises`` is asked then.
    """
    answers = Random(seed)
    asked = 0
    times: Counter[object] = Counter()
    events: list[Event] = []
    found = Run(events, False)

    def frames(frame: FrameType | None) -> tuple[tuple[str, int], ...]:
        chain: list[tuple[str, int]] = []
        while frame is not None:
            if frame.f_code.co_filename == file and frame.f_code.co_name != "<listcomp>":
                chain.append((frame.f_code.co_name, frame.f_lineno))
            frame = frame.f_back
        return tuple(reversed(chain))

    def question() -> bool:
        nonlocal asked
        asked += 1
        if asked == odd_at:
            found.odd_line = frames(sys._getframe(2))[-1][1]
        return asked == odd_at

    def answer() -> bool:
        if not recorded:
            return answers.random() < 0.4
        # The same in a round and at a place, whatever was asked before.
        key = (
            frames(sys._getframe(2)),
            sum(event.communicates and len(event.chain) == 1 for event in events),
        )
        times[key] += 1
        return Random(f"{seed} {key} {times[key]}").random() < 0.4

    def want(_: int) -> bool:
        odd = question() and not odd_raises
        return answer() != odd

    def raises() -> None:
        if question() and odd_raises:
            raise ValueError

    def op() -> None:
        chain = frames(sys._getframe(1))
        events.append(Event(chain[-1][1], True, chain))

    def watch(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != file:
            return None
        if event == "line" and frame.f_code.co_name != "<listcomp>":
            chain = frames(frame)
            events.append(Event(chain[-1][1], False, chain))
            if len(events) > _MOST_LINES:
                raise _OutOfLines
        return watch

    def taken(way: int) -> None:
        place = BranchPlace(file, way >> 24 & 0xFFFFFF, way >> 8 & 0xFFFF)
        found.branches.append(TakenBranch(2 * len(events), place, way & 0xFF))

    names: dict[str, Any] = {TAKEN: taken}
    code = instrumented(text.encode(), file, 0) if recorded else compile(text, file, "exec")
    exec(code, names)
    sys.settrace(watch)
    try:
        names["main"](op, want, raises)
        found.ended = True
    except (_OutOfLines, ValueError):
        pass
    finally:
        sys.settrace(None)
    return found
