"""Names of the variables by which statements decide.

Standard library only: the agent keeps their values, the analyzer shows them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator


def names_of_condition(statement: ast.AST) -> frozenset[str]:
    """Names in the conditions of a statement, without those of statements within it."""
    return frozenset(
        name.id
        for condition in _conditions(statement)
        for name in ast.walk(condition)
        if isinstance(name, ast.Name)
    )


def names_of_conditions(tree: ast.AST) -> frozenset[str]:
    """Names in all conditions of a piece of a program."""
    found = (names_of_condition(node) for node in ast.walk(tree) if isinstance(node, ast.stmt))
    return frozenset().union(*found)


def _conditions(statement: ast.AST) -> Iterator[ast.AST]:
    match statement:
        case ast.If(test=test) | ast.While(test=test):
            yield test
        case ast.For(target=target, iter=items) | ast.AsyncFor(target=target, iter=items):
            yield from (target, items)
        case ast.Match(subject=subject):
            yield subject
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.With() | ast.Try():
            return
        case _:
            for node in ast.walk(statement):
                match node:
                    case ast.IfExp(test=test):
                        yield test
                    case ast.BoolOp(values=values):
                        yield from values[:-1]


def suppresses(context: ast.expr) -> bool:
    """True for ``contextlib.suppress(...)``."""
    match context:
        case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress")):
            return True
    return False
