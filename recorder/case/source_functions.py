"""Functions whose source a Case holds: as trees, and by the lines that stand in them."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hanglab.recorder.case.records import SourceFunction
from hanglab.recorder.case.user_code import MODULE

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module

#: Errors of :func:`parsed`: what stands there is no function that this Python can read.
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


def parsed(source: SourceFunction) -> Function:
    """The function's tree, with the line numbers of its file.  Raises any of UNREADABLE."""
    text = "\n".join(source.lines)
    if source.function == MODULE:
        return ast.parse(text)
    # A method's lines stand further in than a file's own.
    body = ast.parse(f"if True:\n{text}" if text[:1].isspace() else text).body
    shift = source.first_line - 1
    if body and isinstance(body[0], ast.If):
        body, shift = body[0].body, shift - 1
    function = body[0] if body else None
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        raise ValueError("no function stands there")
    ast.increment_lineno(function, shift)
    return function


def innermost(functions: Iterable[SourceFunction], file: str, line: int) -> SourceFunction | None:
    """The innermost of some functions that holds a line of a file."""
    holding = [
        one for one in functions if one.file == file and one.first_line <= line <= one.last_line
    ]
    # A file's own code is around all of its functions.
    return max(holding, key=lambda one: (one.function != MODULE, one.first_line), default=None)
