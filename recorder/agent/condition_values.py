"""Values of the variables by which the functions on a rank's stack decide.

Only on request: ``HANGLAB_LOCALS=1``.  Of all variables those alone are kept that conditions of
these functions name.
"""

from __future__ import annotations

import ast
import os
import textwrap
from collections.abc import Sequence

from hanglab.recorder.agent.watched_rank import WatchedRank
from hanglab.recorder.case.conditions import names_of_conditions
from hanglab.recorder.case.records import LocalValue, SourceFunction
from hanglab.recorder.case.user_code import MODULE
from hanglab.recorder.system.stacks import locals_of

#: Set to 1, this name of the environment has values of variables kept.
LOCALS = "HANGLAB_LOCALS"
#: Characters of a value that are kept: a number, a name, the begin of a list.
_LONGEST = 100


def are_wanted() -> bool:
    return os.environ.get(LOCALS) == "1"


def condition_values(rank: WatchedRank, functions: Sequence[SourceFunction]) -> list[LocalValue]:
    """Values of the variables by which functions on a rank's stack decide.

    Raises NoStacks.
    """
    stat = rank.stat()
    frames = locals_of(rank.pid, stopped=stat is not None and stat.state in "TtD")
    found = []
    for frame, values in frames:
        function = _around(functions, frame.file, frame.line)
        for name in sorted(_names(function) & values.keys()) if function else ():
            value = values[name][:_LONGEST]
            found.append(LocalValue(frame.file, frame.function, frame.line, name, value))
    return found


def _around(functions: Sequence[SourceFunction], file: str, line: int) -> SourceFunction | None:
    """The innermost function that holds a line."""
    holding = [
        one
        for one in functions
        if one.file == file and one.lines and one.first_line <= line <= one.last_line
    ]
    return max(holding, key=lambda one: (one.function != MODULE, one.first_line), default=None)


def _names(function: SourceFunction) -> frozenset[str]:
    try:
        tree = ast.parse(textwrap.dedent("\n".join(function.lines)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    return names_of_conditions(tree)
