"""Functions whose source a Case holds, by the frames that stand in them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property

from hanglab.analyzer.branching.flow_graph import FlowGraph
from hanglab.recorder.case.records import SourceFunction
from hanglab.recorder.case.source_functions import UNREADABLE, Function, parsed
from hanglab.recorder.case.user_code import MODULE


class FunctionCode:
    """One function: its source, and the ways through it.  ``broken`` says why there are none."""

    def __init__(self, source: SourceFunction) -> None:
        self.source = source
        self.broken = source.absent
        self.tree: Function | None = None
        if not self.broken:
            try:
                self.tree = parsed(source)
            except UNREADABLE:
                self.broken = "its source cannot be parsed"

    def __repr__(self) -> str:
        return f"{self.source.function} ({self.source.file}:{self.source.first_line})"

    @cached_property
    def flow(self) -> FlowGraph:
        """The ways through it.  Only where it is not ``broken``."""
        assert self.tree is not None
        return FlowGraph(self.tree)

    def text(self, line: int) -> str:
        """A line of the file, without the blanks around it."""
        return self.source.lines[line - self.source.first_line].strip()


class Sources:
    """Functions of one job, whichever host told of them."""

    def __init__(self, functions: Iterable[SourceFunction]) -> None:
        # One that begins in the first line begins where the file itself does.
        self._of_file: dict[str, dict[tuple[int, str], FunctionCode]] = {}
        checksums: dict[str, set[str]] = {}
        for one in functions:
            of_file = self._of_file.setdefault(one.file, {})
            if (one.first_line, one.function) not in of_file:
                of_file[one.first_line, one.function] = FunctionCode(one)
            if one.checksum:
                checksums.setdefault(one.file, set()).add(one.checksum)
        for file, seen in checksums.items():
            for code in self._of_file[file].values() if len(seen) > 1 else ():
                code.broken = "the file differs between the job's hosts"

    def __bool__(self) -> bool:
        return bool(self._of_file)

    def functions(self) -> Iterator[FunctionCode]:
        """All whose source can be read."""
        for of_file in self._of_file.values():
            yield from (code for code in of_file.values() if not code.broken)

    def of_name(self, file: str, name: str) -> list[FunctionCode]:
        """Functions of a file that have a name."""
        of_file = self._of_file.get(file, {}).values()
        return [code for code in of_file if code.source.function == name and not code.broken]

    def module(self, file: str) -> FunctionCode | None:
        """A file's own code."""
        return self._of_file.get(file, {}).get((1, MODULE))

    def at(self, file: str, line: int) -> FunctionCode | None:
        """The innermost function whose source holds a line."""
        holding = [
            code
            for code in self._of_file.get(file, {}).values()
            if code.source.first_line <= line <= code.source.last_line
            and not _is_left_out(code, line)
        ]
        return min(holding, key=lambda code: len(code.source.lines) or 1 << 30, default=None)


def _is_left_out(code: FunctionCode, line: int) -> bool:
    """True if a line is of a function whose place in the file's own code is empty.

    Nothing is called from an empty line, nor from ``pass``.
    """
    lines, first = code.source.lines, code.source.first_line
    of_file = code.source.function == MODULE and line - first < len(lines)
    return of_file and lines[line - first].strip() in ("", "pass")


def calls_by_name(code: FunctionCode, sources: Sources) -> Iterator[tuple[int, FunctionCode]]:
    """Nodes of a function that call another of its file by name, and that one.

    A function of the file's own, or a method of ``self``, where one alone has the name.
    """
    for number, node in enumerate(code.flow.nodes):
        for call in (one for part in node.parts for one in ast.walk(part)):
            if not isinstance(call, ast.Call):
                continue
            match call.func:
                case ast.Name(id=name):
                    method = False
                case ast.Attribute(value=ast.Name(id="self"), attr=name):
                    method = True
                case _:
                    continue
            named = sources.of_name(code.source.file, name)
            if len(named) == 1 and named[0].source.lines[0][:1].isspace() == method:
                yield number, named[0]
