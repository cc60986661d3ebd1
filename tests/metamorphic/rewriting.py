"""Rewrites a scenario so that nothing a peeking analyzer could hold on to stays the same.

Comments and docstrings go; functions, classes, sections and the file get other
names; ranks are permuted; the fault strikes at another step.  What the program
does stays what it was.
"""

from __future__ import annotations

import ast
import io
import queue
import zlib
from collections.abc import Mapping
from pathlib import Path
from threading import Thread

#: Names that torch or Python call by that name.
_CALLED_FROM_OUTSIDE = frozenset({"forward", "backward", "run"}).union(
    # An attribute of that name may be one of theirs.
    *(dir(kind) for kind in (list, dict, set, str, bytes, Path, io.BytesIO, queue.Queue, Thread))
)
_OLD_STEP, _NEW_STEP = 5, 3
#: How a program asks for its rank.
_RANK = ("job.rank", "dist.get_rank()")
#: Calls whose other arguments are ranks, or which give some rank a part of its own.
_CALLS_WITH_RANKS = frozenset(
    {"new_group", "send", "recv", "isend", "irecv", "P2POp", "TCPStore", "init_device_mesh", "save"}
)


class _Names(ast.NodeVisitor):
    """Collects the names that the file itself gives to functions, classes and methods."""

    def __init__(self) -> None:
        self.defined: list[str] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._add(node.name)
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._add(node.name)
        self.generic_visit(node)

    def _add(self, name: str) -> None:
        if not name.startswith("__") and name not in _CALLED_FROM_OUTSIDE:
            self.defined.append(name)


class _Rewriter(ast.NodeTransformer):
    def __init__(
        self, names: Mapping[str, str], ranks: Mapping[int, int], steps: Mapping[int, int]
    ) -> None:
        self.names = names
        self.ranks = ranks
        self.steps = steps

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self.names.get(node.name, node.name)
        node.body = _without_docstring(node.body)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self.names.get(node.name, node.name)
        node.body = _without_docstring(node.body)
        return self.generic_visit(node)

    def visit_Module(self, node: ast.Module) -> ast.AST:
        node.body = _without_docstring(node.body)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        # A method of the file's own is called on `self` or on a plain variable.
        if isinstance(node.value, ast.Name) and node.value.id not in ("torch", "dist", "job", "os"):
            node.attr = self.names.get(node.attr, node.attr)
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        left = ast.unparse(node.left)
        if left in _RANK:
            node.comparators = [_map_integers(c, self.ranks) for c in node.comparators]
        elif left == "step":
            node.comparators = [_map_integers(c, self.steps) for c in node.comparators]
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        if isinstance(node.op, ast.Mult):
            node.left = _map_integers(node.left, self.steps)
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, bytes) and self.steps:
            old, new = b"-%d" % _OLD_STEP, b"-%d" % _NEW_STEP
            return ast.copy_location(ast.Constant(node.value.replace(old, new)), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        called = ast.unparse(node.func)
        if called == "job.section" and isinstance(node.args[0], ast.Constant):
            node.args[0] = ast.Constant("part_" + str(node.args[0].value)[::-1])
        if called == "Expect":
            # The marks are comments: without them no line can be expected.
            node.keywords = [word for word in node.keywords if word.arg != "location"]
            node.keywords.append(ast.keyword("location", ast.Constant(None)))
        for keyword in node.keywords:
            if keyword.arg in ("rank", "culprits", "src", "dst"):
                keyword.value = _map_integers(keyword.value, self.ranks)
            elif keyword.arg == "at_step":
                keyword.value = _map_integers(keyword.value, self.steps)
        return self.generic_visit(node)


def may_change_ranks(source: Path) -> bool:
    """True if ranks differ only by what is seen here: where one is compared to certain numbers."""
    tree = ast.parse(source.read_text())
    compared = {
        id(node.left)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and all(isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in node.ops)
        and all(_is_literal(one) for one in node.comparators)
    }
    for node in ast.walk(tree):
        named = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
        if named in _CALLS_WITH_RANKS:
            return False
        if (isinstance(node, ast.Attribute) and node.attr == "rank") or named == "get_rank":
            if id(node) not in compared or ast.unparse(node) not in _RANK:
                return False
    return True


def may_change_step(tree: ast.AST) -> bool:
    """True if no step has a part because of its remainder, as each fifth may."""
    return not any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mod)
        and ast.unparse(node.left) == "step"
        for node in ast.walk(tree)
    )


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True


def _map_integers(node: ast.expr, mapping: Mapping[int, int]) -> ast.expr:
    for child in ast.walk(node):
        if isinstance(child, ast.Constant) and type(child.value) is int:
            child.value = mapping.get(child.value, child.value)
    return node


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return body[1:] or [ast.Pass()]
    return body


def _is_scenario(node: ast.FunctionDef) -> bool:
    calls = [one.func for one in node.decorator_list if isinstance(one, ast.Call)]
    return any(isinstance(call, ast.Name) and call.id == "scenario" for call in calls)


def rewrite(source: Path, folder: Path, ranks: Mapping[int, int]) -> tuple[Path, str]:
    """Write the rewritten scenario into ``folder``; returns the file and its scenario's name."""
    tree = ast.parse(source.read_text())
    collector = _Names()
    collector.visit(tree)
    names = {name: f"item_{i}" for i, name in enumerate(sorted(set(collector.defined)))}
    scenario = next(
        node.name for node in tree.body if isinstance(node, ast.FunctionDef) and _is_scenario(node)
    )
    # Results are told apart by scenario name, so that one says which file it was.
    names[scenario] = f"program_{zlib.crc32(source.stem.encode())}"
    steps = {_OLD_STEP: _NEW_STEP} if may_change_step(tree) else {}
    rewritten = ast.unparse(_Rewriter(names, ranks, steps).visit(tree))
    target = folder / f"{names[scenario]}.py"
    target.write_text(rewritten + "\n")
    return target, names[scenario]
