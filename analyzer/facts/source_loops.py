"""Loops as the source in a Case has them, of code in which no rank stands any more.

A host that runs ahead of its device is long past the function whose calls hang, so that no stack
tells its loops.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.flight_recorder.columns import Frame
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.source_functions import UNREADABLE, innermost, parsed


def is_behind_loop_of(facts: CaseFacts, mine: Sequence[Frame], theirs: Sequence[Frame]) -> bool:
    """True if one call was made behind a loop of the function in which the other was made."""
    for here, there in zip(reversed(mine), reversed(theirs), strict=False):
        if here == there:
            continue
        if (here.file, here.function) != (there.file, there.function):
            return False
        return any(first <= there.line <= last < here.line for first, last in _loops(facts, here))
    return False


def _loops(facts: CaseFacts, frame: Frame) -> list[tuple[int, int]]:
    """First and last line of the loops of the innermost function around a line."""
    of_file = [
        source
        for host in facts.hosts.values()
        for source in host.read(files.SOURCES)
        if source.file == frame.file
    ]
    if len({source.checksum for source in of_file if source.checksum}) > 1:
        return []  # Hosts have other versions of it.
    source = innermost(of_file, frame.file, frame.line)
    try:
        tree = parsed(source) if source is not None else None
    except UNREADABLE:
        return []
    return [
        (node.lineno, node.end_lineno or node.lineno)
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.For | ast.AsyncFor | ast.While)
    ]
