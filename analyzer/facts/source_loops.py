"""Loops as the source in a Case has them, of code in which no rank stands any more.

A host that runs ahead of its device is long past the function whose calls hang, so that no stack
tells its loops.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Sequence

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.flight_recorder.columns import Frame
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.records import SourceFunction


def is_behind_loop_of(facts: CaseFacts, mine: Sequence[Frame], theirs: Sequence[Frame]) -> bool:
    """True if one call was made behind a loop of the function in which the other was made."""
    for here, there in zip(reversed(mine), reversed(theirs), strict=False):
        if here == there:
            continue
        if (here.file, here.function) != (there.file, there.function):
            return False
        return any(first <= there.line <= last < here.line for first, last in _loops(facts, here))
    return False


def _loops(facts: CaseFacts, frame: Frame) -> Iterator[tuple[int, int]]:
    """First and last line of the loops of the innermost function around a line."""
    around = [
        source
        for host in facts.hosts.values()
        for source in host.read(files.SOURCES)
        if source.file == frame.file and source.first_line <= frame.line <= source.last_line
    ]
    for source in sorted(around, key=lambda one: one.last_line - one.first_line)[:1]:
        yield from _loops_of(source)


def _loops_of(source: SourceFunction) -> list[tuple[int, int]]:
    try:
        tree = ast.parse(textwrap.dedent("\n".join(source.lines)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    before = source.first_line - 1
    return [
        (node.lineno + before, (node.end_lineno or node.lineno) + before)
        for node in ast.walk(tree)
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While))
    ]
