"""Tracebacks as pytest can show them.

What raises at an instruction that belongs to no line, as a limit on time may, has none in its
traceback; pytest 9 fails over that, and ends the whole run.
"""

from __future__ import annotations

from types import TracebackType


def repair(error: BaseException | None) -> None:
    """Make the tracebacks of an error, and of those that led to it, fit to be shown."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__ = with_lines(error.__traceback__)
        error = error.__cause__ or error.__context__


def with_lines(traceback: TracebackType | None) -> TracebackType | None:
    """The same without the entries that have no line."""
    if traceback is None:
        return None
    rest = with_lines(traceback.tb_next)
    if traceback.tb_lineno is None:  # typeshed knows of no such entry
        return rest
    traceback.tb_next = rest
    return traceback
