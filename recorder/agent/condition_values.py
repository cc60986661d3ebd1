"""Values of the variables by which the functions on a rank's stack decide.

Only on request: ``HANGLAB_LOCALS=1``.  Of all variables those alone are kept that conditions of
these functions name.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from hanglab.recorder.agent.watched_rank import WatchedRank
from hanglab.recorder.case.conditions import names_of_conditions
from hanglab.recorder.case.records import LocalValue, SourceFunction
from hanglab.recorder.case.source_functions import UNREADABLE, innermost, parsed
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
        function = innermost(functions, frame.file, frame.line)
        for name in sorted(_names(function) & values.keys()) if function else ():
            value = values[name][:_LONGEST]
            found.append(LocalValue(frame.file, frame.function, frame.line, name, value))
    return found


def _names(function: SourceFunction) -> frozenset[str]:
    try:
        return names_of_conditions(parsed(function))
    except UNREADABLE:
        return frozenset()
