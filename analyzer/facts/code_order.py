"""Order of two lines of one function within one iteration, by its basic blocks."""

from __future__ import annotations

from collections.abc import Sequence

from hanglab.recorder.case.records import CodeBlock, CodeShape


def comes_before(shape: CodeShape, first: int, second: int) -> bool:
    """True if ``second`` may follow on ``first``, and ``first`` never on ``second``.

    Lines of different branches follow neither way.
    """
    return _follows(shape.blocks, first, second) and not _follows(shape.blocks, second, first)


def _follows(blocks: Sequence[CodeBlock], first: int, second: int) -> bool:
    reached = set()
    for number, block in enumerate(blocks):
        if first in block.lines:
            if second in block.lines[block.lines.index(first) + 1 :]:
                return True
            reached.update(block.next)
        # A block follows on earlier ones only.
        if number in reached:
            if second in block.lines:
                return True
            reached.update(block.next)
    return False
