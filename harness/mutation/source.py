"""A script's source as statements, and its mutants: rewritten such that all lines stay."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from hanglab.harness.errors import UsageError

#: What a mutant's first lines get besides: its faults, and the folder of the original.
_PRELUDE = "import mutation_point, mutation_values; __file__ = mutation_point.ORIGINAL"


class SourceError(UsageError):
    """A script cannot be read or rewritten."""

    advice = "Give a script of Python that runs; `python -m py_compile SCRIPT` tells of its syntax."


Changes = Mapping[cst.CSTNode, cst.CSTNode]


@dataclass(frozen=True, eq=False)
class Statement:
    """A statement of the script, and where it stands."""

    node: cst.BaseStatement
    #: Its first line and its last; of a compound one the last of its header.
    line: int
    end: int
    block: Sequence[cst.BaseStatement]
    index: int
    function: cst.FunctionDef | None
    #: The innermost loop of the same function that it stands in.
    loop: cst.For | cst.While | None
    #: How deep it stands in blocks of that function.
    depth: int

    @property
    def simple(self) -> cst.SimpleStatementLine | None:
        return self.node if isinstance(self.node, cst.SimpleStatementLine) else None

    @property
    def call(self) -> cst.Call | None:
        """The call, where the statement is nothing but one."""
        if self.simple is None or len(self.simple.body) != 1:
            return None
        only = self.simple.body[0]
        return (
            only.value if isinstance(only, cst.Expr) and isinstance(only.value, cst.Call) else None
        )


class Script:
    """A parsed training script."""

    def __init__(self, path: Path) -> None:
        """Raises SourceError."""
        self.path = path
        try:
            self.source = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as failure:
            reason = getattr(failure, "strerror", None) or "it is no text in UTF-8"
            raise SourceError(f"{path} cannot be read: {reason}.") from failure
        try:
            wrapper = MetadataWrapper(cst.parse_module(self.source))
            compile(self.source, str(path), "exec", dont_inherit=True)
        except (cst.ParserSyntaxError, SyntaxError, ValueError) as failure:
            line = getattr(failure, "raw_line", None) or getattr(failure, "lineno", None) or 1
            raise SourceError(f"{path}:{line} is no Python that can be parsed.") from failure
        self.module = wrapper.module
        self._positions = wrapper.resolve(PositionProvider)
        self.statements = tuple(self._walk(self.module.body, None, None, 0))
        self._host = self._prelude_host()
        self.by_node = {statement.node: statement for statement in self.statements}

    def _walk(
        self,
        block: Sequence[cst.BaseStatement],
        function: cst.FunctionDef | None,
        loop: cst.For | cst.While | None,
        depth: int,
    ) -> Iterator[Statement]:
        for index, node in enumerate(block):
            line = self._first_line(node)
            inner = list(_blocks(node))
            end = self.last_line(node)
            if inner and isinstance(inner[0], cst.IndentedBlock):
                end = max(line, self._first_line(inner[0].body[0]) - 1)
            yield Statement(node, line, end, block, index, function, loop, depth)
            is_definition = isinstance(node, cst.FunctionDef)
            within = node if isinstance(node, cst.FunctionDef) else function
            if isinstance(node, cst.ClassDef):
                within = None
            around = node if isinstance(node, cst.For | cst.While) else loop
            around = None if is_definition or isinstance(node, cst.ClassDef) else around
            deeper = 0 if is_definition else depth + 1
            for suite in inner:
                if isinstance(suite, cst.IndentedBlock):
                    yield from self._walk(suite.body, within, around, deeper)

    def _first_line(self, node: cst.CSTNode) -> int:
        line: int = self._positions[node].start.line
        if isinstance(node, cst.FunctionDef | cst.ClassDef) and node.decorators:
            line = self._positions[node.name].start.line
        return line

    def last_line(self, node: cst.CSTNode) -> int:
        line: int = self._positions[node].end.line
        return line

    def code(self, node: cst.CSTNode) -> str:
        return self.module.code_for_node(node)

    def rest_of_block(self, statement: Statement) -> list[Statement]:
        """The statement and those that follow it in its block."""
        return [self.by_node[node] for node in statement.block[statement.index :]]

    def inside(self, statement: Statement) -> list[Statement]:
        """The statements of a compound one's blocks, at any depth."""
        last = self.last_line(statement.node)
        return [one for one in self.statements if statement.line < one.line <= last]

    def can_change(self, statement: Statement) -> bool:
        """True if it is not the one whose line carries the mutant's prelude."""
        return statement.node is not self._host

    def _prelude_host(self) -> cst.SimpleStatementLine:
        """The first statement behind which something may be imported."""
        host: cst.SimpleStatementLine | None = None
        for node in self.module.body:
            if not isinstance(node, cst.SimpleStatementLine):
                break
            first = node.body[0]
            future = isinstance(first, cst.ImportFrom) and _is_future(first)
            if future or host is None:
                host = node
            if not future and not _is_text(first):
                break
        host = host or next(
            (one for one in self.module.body if isinstance(one, cst.SimpleStatementLine)), None
        )
        if host is None:
            raise SourceError(
                f"{self.path} has no simple statement at its top level, such as an import."
            )
        return host

    def rewrite(self, changes: Changes, marked: int | None) -> str:
        """The script with these nodes replaced, and ``marked`` as the fault's line.

        Raises SourceError if a line would move, or one be changed that is none of these nodes'.
        """
        allowed = self.lines_of(self._host) | ({marked} if marked else set())
        for node in changes:
            allowed |= self.lines_of(node)
        prelude = cst.parse_statement(_PRELUDE)
        assert isinstance(prelude, cst.SimpleStatementLine)
        host = self._host.with_changes(body=[*self._host.body, *prelude.body])
        code = self.module.visit(_Replacing({**changes, self._host: host})).code
        if marked:
            code = mark_line(code, marked, "FAULT")
        before, after = self.source.splitlines(), code.splitlines()
        if len(before) != len(after):
            raise SourceError(f"{self.path}:{marked} cannot be changed without moving lines.")
        differing = {
            number
            for number, (old, new) in enumerate(zip(before, after, strict=True), 1)
            if old != new
        }
        if not differing <= allowed:
            raise SourceError(f"{self.path}:{marked} cannot be changed alone.")
        try:
            compile(code, str(self.path), "exec", dont_inherit=True)
        except SyntaxError as failure:
            raise SourceError(f"{self.path}:{marked} cannot be changed so: {failure}.") from failure
        return code

    def lines_of(self, node: cst.CSTNode) -> set[int]:
        """Lines on which a node of the script stands."""
        position = self._positions[node]
        return set(range(position.start.line, position.end.line + 1))


class _Replacing(cst.CSTTransformer):
    """Replaces nodes by identity, innermost first."""

    def __init__(self, changes: Changes) -> None:
        super().__init__()
        self.changes = changes

    def on_visit(self, node: cst.CSTNode) -> bool:
        return node not in self.changes

    def on_leave(
        self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT
    ) -> cst.CSTNodeT | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNodeT]:
        changed = self.changes.get(original_node, updated_node)
        return cast("cst.CSTNodeT", changed)


def _blocks(node: cst.BaseStatement) -> Iterator[cst.BaseSuite]:
    """The suites of a compound statement, in their order."""
    body = getattr(node, "body", None)
    if isinstance(body, cst.BaseSuite):
        yield body
    for handler in getattr(node, "handlers", ()):
        yield handler.body
    for name in ("orelse", "finalbody"):
        further = getattr(node, name, None)
        if isinstance(further, cst.If):
            yield from _blocks(further)
        elif further is not None:
            yield further.body


def _is_future(statement: cst.ImportFrom) -> bool:
    return isinstance(statement.module, cst.Name) and statement.module.value == "__future__"


def _is_text(statement: cst.BaseSmallStatement) -> bool:
    return isinstance(statement, cst.Expr) and isinstance(
        statement.value, cst.SimpleString | cst.ConcatenatedString
    )


def mark_line(code: str, line: int, word: str) -> str:
    """Adds the comment that marks a line, unless the line ends inside of a string or a logical one.

    A second mark of the same word is not added.
    """
    lines = code.splitlines(keepends=True)
    body = lines[line - 1].rstrip("\n")
    if body.endswith("\\") or _inside_text(code, line) or f"# {word}" in body:
        return code
    lines[line - 1] = f"{body}  # {word}" + lines[line - 1][len(body) :]
    return "".join(lines)


def _inside_text(code: str, line: int) -> bool:
    """True if the end of the line lies in a string of several lines."""
    if '"""' not in code and "'''" not in code:
        return False
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.lineno <= line < (
            node.end_lineno or node.lineno
        ):
            tokens = tokenize.generate_tokens(io.StringIO(code).readline)
            kinds = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
            return any(
                token.type in kinds and token.start[0] <= line < token.end[0] for token in tokens
            )
    return False
