"""Source of the functions that stood on ranks' stacks, or that called operations.

The analyzer finds in it the statement at which the ways of ranks part.  Text is kept only where
it is what runs: of a file that was changed since its rank started, the reason is kept instead.
What only people read is left out: comments, docstrings, decorators with their arguments.
``HANGLAB_SOURCE=0`` leaves all of it out.
"""

from __future__ import annotations

import ast
import hashlib
import io
import os
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from hanglab.recorder.agent.watched_rank import WatchedRank
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import RankCase
from hanglab.recorder.case.records import SourceFunction
from hanglab.recorder.case.user_code import MODULE, PARTS_OF_FUNCTIONS, ProgramCode

#: Set to 0, this name of the environment leaves source code out of Cases.
SOURCE = "HANGLAB_SOURCE"
#: Bytes of a file beyond which it is generated rather than written.
_LARGEST_FILE = 1 << 20
#: Bytes of text that all functions of a host may have.
_MOST_TEXT = 1 << 19
#: Functions of a host: more are on no stacks that people can read.
_MOST_FUNCTIONS = 1000

Definition = ast.FunctionDef | ast.AsyncFunctionDef


class _SourceLine(NamedTuple):
    """A line of a function, as a frame tells it."""

    file: str
    function: str
    line: int


def source_functions(ranks: Iterable[WatchedRank]) -> list[SourceFunction]:
    """Source of the functions of the program that the ranks' evidence so far names."""
    if os.environ.get(SOURCE) == "0":
        return []
    wanted: dict[str, set[tuple[str, int]]] = {}
    started: dict[str, int] = {}
    for rank in ranks:
        is_program = ProgramCode(rank.user_code, rank.process.python.site)
        for place in set(_places(rank)):
            if is_program(place.file):
                wanted.setdefault(place.file, set()).add((place.function, place.line))
                at = rank.process.started.wall_ns
                started[place.file] = min(at, started.get(place.file, at))
    found: dict[tuple[str, int], SourceFunction] = {}
    room = _MOST_TEXT
    for file, places in wanted.items():
        for one in functions_of(file, sorted(places), started[file]):
            size = sum(map(len, one.lines))
            if size <= room and len(found) < _MOST_FUNCTIONS:
                room -= size
                found[one.file, one.first_line] = one
    return list(found.values())


def _places(rank: WatchedRank) -> Iterator[_SourceLine]:
    evidence = RankCase(rank.folder, "", rank.rank, rank.attempt, [])
    for sample in evidence.read(files.STACKS):
        for thread in sample.threads:
            for frame in thread.frames:
                yield _SourceLine(frame.file, frame.function, frame.line)
    for end in evidence.read(files.PROGRAM_ENDS):
        if end.frame is not None:
            yield _SourceLine(end.frame.file, end.frame.function, end.frame.line)
    errors = (files.EXCEPTIONS, files.HANDLED, files.PENDING)
    for raised in (one for kind in errors for one in evidence.read(kind)):
        for frame in raised.frames:
            yield _SourceLine(frame.file, frame.function, frame.line)
    progress = evidence.read(files.PROGRESS)
    for operation in progress.operations if progress is not None else ():
        yield _SourceLine(operation.file, operation.function, operation.line)
    branches = evidence.read(files.BRANCHES)
    for place in {one.place for one in branches.branches} if branches is not None else ():
        # Of which function does not matter: the line tells.
        yield _SourceLine(place.file, MODULE, place.line)


def functions_of(
    file: str, places: Sequence[tuple[str, int]], started_ns: int
) -> list[SourceFunction]:
    """Functions of one file that hold ``places``, each a function's name and a line of it.

    ``started_ns`` is the wall clock's time after which the file must not have changed.
    """
    reason, data = "", b""
    try:
        status = os.stat(file)
        if max(status.st_mtime_ns, status.st_ctime_ns) > started_ns:
            reason = "the file was changed since the job started"
        elif status.st_size > _LARGEST_FILE:
            reason = f"the file has more than {_LARGEST_FILE >> 20} MiB"
        else:
            data = Path(file).read_bytes()
    except OSError as error:
        reason = f"the file cannot be read: {error.strerror}"
    tree, text = None, ""
    if not reason:
        try:
            tree = ast.parse(data)
            text = data.decode()
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            reason = "the file holds no Python source"
    if tree is None:
        return [SourceFunction(file, name, line, line, absent=reason) for name, line in places]
    lines, checksum = _bare_lines(tree, text), hashlib.sha256(data).hexdigest()
    definitions = [node for node in ast.walk(tree) if isinstance(node, Definition)]
    found: dict[int, SourceFunction] = {}
    places = [*places, *_callers(definitions, places)]
    for name, line in places:
        around = [d for d in definitions if _first(d) <= line <= (d.end_lineno or d.lineno)]
        inner = max(around, key=_first, default=None)
        if inner is None:
            if name == MODULE or name in PARTS_OF_FUNCTIONS:
                own = _own_lines(tree, lines)
                found[0] = SourceFunction(file, MODULE, 1, len(own), own, checksum)
        else:
            first, last = inner.lineno, inner.end_lineno or inner.lineno
            found[first] = SourceFunction(
                file, inner.name, first, last, lines[first - 1 : last], checksum
            )
    return list(found.values())


def _bare_lines(tree: ast.Module, text: str) -> list[str]:
    """The lines of a file, without comments and docstrings."""
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    for node in ast.walk(tree):
        if not isinstance(node, Definition | ast.ClassDef | ast.Module):
            continue
        if ast.get_docstring(node, clean=False) is None:
            continue
        string = node.body[0]
        before = lines[string.lineno - 1][: string.col_offset]
        if not before.strip():
            last = string.end_lineno or string.lineno
            lines[string.lineno - 1 : last] = [before + "pass", *[""] * (last - string.lineno)]
    return lines


def _callers(
    definitions: Sequence[Definition], places: Sequence[tuple[str, int]]
) -> list[tuple[str, int]]:
    """Functions of the file that call those of ``places`` by name, and those that call them."""
    names = {name.rpartition(".")[2] for name, _ in places}
    calling: dict[str, Definition] = {}
    added = True
    while added:
        added = False
        for one in definitions:
            if one.name in calling or one.name in names:
                continue
            if not names.isdisjoint(_called_names(one)):
                calling[one.name] = one
                names.add(one.name)
                added = True
    return [(one.name, one.lineno) for one in calling.values()]


def _called_names(definition: Definition) -> set[str]:
    names = set()
    for node in ast.walk(definition):
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self"), attr=name):
                    names.add(name)
    return names


def _first(definition: Definition | ast.ClassDef) -> int:
    return min([definition.lineno, *(one.lineno for one in definition.decorator_list)])


def _own_lines(tree: ast.Module, lines: Sequence[str]) -> list[str]:
    """The lines of a file's own code, with ``pass`` in place of functions and classes."""
    own = list(lines)
    waiting: list[ast.AST] = [tree]
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            if isinstance(node, Definition | ast.ClassDef):
                first = _first(node)
                for line in range(first, (node.end_lineno or first) + 1):
                    own[line - 1] = ""
                own[first - 1] = " " * node.col_offset + "pass"
            else:
                waiting.append(node)
    return own
