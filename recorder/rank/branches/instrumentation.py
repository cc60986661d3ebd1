"""Compiling a file of the user's with a call on each of its branches.

Lines, names and results stay as they are.  An ``if`` of a constant decides nothing and has no call.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from types import CodeType
from typing import TypeVar

from hanglab.recorder.case import branch_layout as layout
from hanglab.recorder.case.conditions import suppresses

#: The name under which all files find the function to call; among the builtins, so that no
#: module's own names change.
TAKEN = "__hanglab_branch_taken__"
#: A comment of a file that says that its branches are none of the program's.
LEFT_OUT = b"# hanglab: no branches"

Loop = TypeVar("Loop", ast.For, ast.AsyncFor, ast.While)
Comprehension = TypeVar("Comprehension", ast.ListComp, ast.SetComp, ast.GeneratorExp)


def instrumented(source: bytes, file: str, number: int, *, is_script: bool = False) -> CodeType:
    """Code of a file, each of whose branches calls ``TAKEN`` with its way.

    ``number`` is the file's.  A script that was found as a module forgets that.  Raises
    SyntaxError and ValueError where the interpreter would.
    """
    tree = ast.parse(source, file)
    if LEFT_OUT not in source:
        tree = _Instrumenter(number).visit(tree)
    if is_script:
        # Else processes that multiprocessing spawns would not import it.
        begin = next((i for i, one in enumerate(tree.body) if not _stays_first(one)), 0)
        tree.body[begin:begin] = ast.parse("__spec__ = __package__ = __cached__ = None").body
    code = compile(tree, file, "exec", dont_inherit=True)
    assert isinstance(code, CodeType)
    return code


def _stays_first(statement: ast.stmt) -> bool:
    """True for docstrings and ``from __future__``, before which nothing may stand."""
    match statement:
        case ast.Expr(value=ast.Constant()) | ast.ImportFrom(module="__future__"):
            return True
    return False


class _Instrumenter(ast.NodeTransformer):
    def __init__(self, file: int) -> None:
        self._file = file

    def _call(self, node: ast.stmt | ast.expr, kind: int) -> ast.Call:
        number = layout.way(self._file, node.lineno, node.col_offset, kind)
        return ast.Call(ast.Name(TAKEN, ast.Load()), [ast.Constant(number)], [])

    def _noting(
        self, node: ast.stmt, kind: int, body: Sequence[ast.stmt], at: ast.AST
    ) -> list[ast.stmt]:
        """A block that begins with the call, which stands at the lines of ``at``."""
        call = ast.copy_location(ast.Expr(self._call(node, kind)), at)
        return [ast.fix_missing_locations(call), *body]

    def _valued(self, node: ast.expr, kind: int, value: ast.expr) -> ast.expr:
        """``value`` after the call, which gives None."""
        both = ast.copy_location(ast.BoolOp(ast.Or(), [self._call(node, kind), value]), value)
        return ast.fix_missing_locations(both)

    def visit_If(self, node: ast.If) -> ast.If:
        test = node.test
        self.generic_visit(node)
        if not isinstance(test, ast.Constant):
            node.body = self._noting(node, layout.IF_TAKEN, node.body, node.body[0])
            node.orelse = self._noting(node, layout.IF_PASSED, node.orelse, test)
        return node

    def visit_For(self, node: ast.For) -> ast.For:
        return self._loop(node, node.target)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AsyncFor:
        return self._loop(node, node.target)

    def visit_While(self, node: ast.While) -> ast.While:
        return self._loop(node, node.test)

    def _loop(self, node: Loop, head: ast.expr) -> Loop:
        self.generic_visit(node)
        node.body = self._noting(node, layout.LOOP_AGAIN, node.body, node.body[0])
        node.orelse = self._noting(node, layout.LOOP_LEFT, node.orelse, head)
        return node

    def visit_Try(self, node: ast.Try) -> ast.Try:
        self.generic_visit(node)
        for kind, handler in zip(layout.HANDLERS, node.handlers, strict=False):
            handler.body = self._noting(node, kind, handler.body, handler.body[0])
        return node

    visit_TryStar = visit_Try

    def visit_With(self, node: ast.With) -> ast.With:
        self.generic_visit(node)
        last = node.body[-1]
        if any(suppresses(item.context_expr) for item in node.items):
            node.body = [*node.body, *self._noting(node, layout.BLOCK_ENDED, [], last)]
        return node

    def visit_Match(self, node: ast.Match) -> ast.Match:
        self.generic_visit(node)
        for kind, case in zip(layout.CASES, node.cases, strict=False):
            case.body = self._noting(node, kind, case.body, case.body[0])
        last = node.cases[-1]
        if not isinstance(last.pattern, ast.MatchAs) or last.pattern.pattern or last.guard:
            none = ast.match_case(ast.MatchAs(), None, [])
            none.body = self._noting(node, layout.NO_CASE, [], node.subject)
            ast.copy_location(none.pattern, node.subject)
            node.cases.append(none)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.IfExp:
        self.generic_visit(node)
        node.body = self._valued(node, layout.VALUE_TAKEN, node.body)
        node.orelse = self._valued(node, layout.OTHER_VALUE, node.orelse)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.BoolOp:
        self.generic_visit(node)
        later = [self._valued(node, layout.OPERAND, value) for value in node.values[1:]]
        node.values = [node.values[0], *later]
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.ListComp:
        return self._comprehension(node)

    def visit_SetComp(self, node: ast.SetComp) -> ast.SetComp:
        return self._comprehension(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.GeneratorExp:
        return self._comprehension(node)

    def _comprehension(self, node: Comprehension) -> Comprehension:
        self.generic_visit(node)
        node.elt = self._valued(node, layout.ELEMENT, node.elt)
        return node

    def visit_DictComp(self, node: ast.DictComp) -> ast.DictComp:
        self.generic_visit(node)
        node.key = self._valued(node, layout.ELEMENT, node.key)
        return node
