"""Loops and their counters are read off code that is really on a stack."""

from __future__ import annotations

import itertools
import signal
from typing import Any

from hanglab.recorder.rank.code_shapes import blocks_of, loops_of, standing_code


def lines_of(function: object) -> tuple[int, list[tuple[int, int, tuple[str, ...]]]]:
    code = function.__code__  # type: ignore[attr-defined]
    first = code.co_firstlineno
    return first, [(one.first - first, one.last - first, one.targets) for one in loops_of(code)]


def for_and_while(rows: list[tuple[int, tuple[int, int]]]) -> int:
    total = 0
    for index, (x, y) in rows:
        if index == 3:
            continue
        while total < 5:
            total += x
        total += y
    while True:
        total += 1
        if total > 9:
            break
    return total


def straight(x: int) -> int:
    if x:
        return 1
    return 2


def test_loops_span_their_bodies_outermost_first() -> None:
    _, loops = lines_of(for_and_while)
    spans = [(first, last) for first, last, _ in loops]
    assert spans[0] == (2, 7)
    assert (5, 6) in spans
    assert any(first >= 8 and last >= 9 for first, last in spans)
    assert loops[0][2][0] == "index"


def test_code_without_loops_has_none() -> None:
    assert lines_of(straight)[1] == []


def branches(rank: int, rows: list[int]) -> int:
    total = 1
    for row in rows:
        if rank == 1:
            total += row
        else:
            total -= row
        with open(__file__):
            total += 2
        for more in rows:
            total += more
        total *= 2
    return total


def test_blocks_say_which_line_may_follow_on_which() -> None:
    from hanglab.analyzer.facts.code_order import comes_before
    from hanglab.recorder.case.records import CodeBlock, CodeShape

    code = branches.__code__
    first = code.co_firstlineno
    blocks = [CodeBlock(*block) for block in blocks_of(code)]
    shape = CodeShape(__file__, "branches", first, first + 12, [], blocks)

    def order(one: int, other: int) -> tuple[bool, bool]:
        lines = first + one, first + other
        return comes_before(shape, *lines), comes_before(shape, *reversed(lines))

    # From one branch to what is behind both, through a loop, and out of a loop.
    for one, other in [(1, 4), (4, 8), (6, 8), (8, 10), (10, 11), (4, 11), (11, 12), (10, 12)]:
        assert order(one, other) == (True, False), (one, other)
    # Two branches; a line that comes twice in an iteration.
    assert order(4, 6) == (False, False)
    assert order(7, 8) == (False, False)
    assert max(max(block.next, default=0) for block in blocks) < len(blocks)


def counting() -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for step, name in enumerate("abc"):
        if name == "b":
            found = standing_code(lambda file: file == __file__)
            assert step == 1
            break
    return found


def test_the_counter_of_a_loop_on_the_stack_is_kept_and_nothing_else() -> None:
    shapes = {shape["function"]: shape for shape in counting()}
    (loop,) = shapes["counting"]["loops"]  # type: ignore[misc]
    assert loop["counter"] == 1
    text = repr(shapes)
    assert "'b'" not in text


def test_shapes_are_what_the_reader_expects() -> None:
    import json

    import msgspec

    from hanglab.recorder.case.records import CodeShape

    shapes = msgspec.json.decode(json.dumps(counting()).encode(), type=list[CodeShape])
    shape = next(s for s in shapes if s.function == "counting")
    assert shape.encloses(shape.loops[0].first)
    assert not shape.encloses(shape.first_line - 1)


def test_a_loop_with_a_long_body_counts_too() -> None:
    # Beyond 255 instructions Python puts an EXTENDED_ARG before the loop's own.
    body = "\n".join(f"        total += {i} * n" for i in range(200))
    source = (
        f"def long_body(n):\n    total = 0\n    for turn in range(n):\n{body}\n    return total\n"
    )
    namespace: dict[str, object] = {}
    exec(source, namespace)
    _, loops = lines_of(namespace["long_body"])
    assert loops == [(2, 202, ("turn",))]


def test_a_loop_that_has_yet_to_begin_again_counts_nothing() -> None:
    """What makes its items stands on the loop's first line, and the name has its last value."""
    seen: list[list[int | None]] = []

    def items(turn: int) -> range:
        (shape,) = (one for one in standing_code(is_here) if one["function"] == "nested")
        seen.append([loop["counter"] for loop in shape["loops"]])
        return range(3)

    def nested() -> None:
        for turn in range(2):
            for at in items(turn):
                if turn == at == 1:
                    items(turn)
        items(2)

    nested()
    assert seen == [[0, None], [1, None], [1, 1], [1, 2]]


def over_many_things(sizes: list[int], tqdm: Any, count: list[int]) -> None:
    for _a in sizes:
        pass
    for _h in count:
        pass
    for _i in tqdm.count():
        pass
    for _b in sorted(sizes):
        pass
    for _c in tqdm(range(len(sizes) if sizes else 3)):
        pass
    for _d, _ in enumerate(
        tqdm(sizes, leave=False),
        start=1,
    ):
        pass
    for _e in itertools.count(1):
        if _e > 2:
            break
    sized = range(4)
    for _g in sized:
        pass
    for _ in range(3):
        for _ in range(2):
            pass


def test_only_what_counts_by_itself_is_sure_to_be_a_counter() -> None:
    """An integer that an iterator gives may be a length: one of shorter ones is no less far."""
    found = loops_of(over_many_things.__code__)
    assert [one.counts for one in found] == [
        False, False, False, False, True, True, True, False, True, True,
    ]  # fmt: skip
    # What the inner loop gives a value as well is none.
    assert [one.targets for one in found[-2:]] == [(), ("_",)]


def test_a_function_that_handles_a_signal_is_known_as_its_handler() -> None:
    seen: list[list[str]] = []

    def handle(*_: object) -> None:
        (shape,) = (one for one in standing_code(is_here) if one["function"] == "handle")
        seen.append(shape["signals"])

    before = signal.signal(signal.SIGUSR2, handle)
    try:
        handle()
    finally:
        signal.signal(signal.SIGUSR2, before)
    handle()
    assert seen == [["SIGUSR2"], []]


def is_here(file: str) -> bool:
    return file == __file__
