"""Pieces of source that put a fault on the line of a statement."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from hanglab.harness.mutation.source import Statement

#: Modules that mutants import besides their own: when a fault strikes, and with what.
POINT = "mutation_point"
VALUES = "mutation_values"


def strikes(rank: int, execution: int, every: int = 0, *, follow: bool = True) -> str:
    """Source of the condition under which a fault strikes."""
    often = f", every={every}" if every else ""
    unfollowed = "" if follow else ", follow=False"
    return f"{POINT}.strikes({rank}, {execution}{often}{unfollowed})"


def expression(source: str) -> cst.BaseExpression:
    return cst.parse_expression(source)


def only_if(statement: Statement, condition: str) -> cst.If:
    """``if condition: statement``, on the line of a simple statement."""
    line = statement.simple
    assert line is not None
    return cst.If(
        test=expression(condition),
        body=cst.SimpleStatementSuite(body=line.body, trailing_whitespace=line.trailing_whitespace),
        leading_lines=line.leading_lines,
    )


def preceded(statement: Statement, source: str) -> cst.SimpleStatementLine:
    """``source; statement``."""
    line = statement.simple
    assert line is not None
    return line.with_changes(body=[*_small(source), *_separated(line.body)])


def followed(statement: Statement, source: str) -> cst.SimpleStatementLine:
    """``statement; source``."""
    line = statement.simple
    assert line is not None
    return line.with_changes(body=[*_separated(line.body), *_small(source)])


def _small(source: str) -> Sequence[cst.BaseSmallStatement]:
    parsed = cst.parse_statement(source)
    assert isinstance(parsed, cst.SimpleStatementLine)
    return _separated(parsed.body)


def _separated(body: Sequence[cst.BaseSmallStatement]) -> list[cst.BaseSmallStatement]:
    """Without a last semicolon of their own: one is written between each two."""
    return [one.with_changes(semicolon=cst.MaybeSentinel.DEFAULT) for one in body]


def in_place_of(value: cst.BaseExpression, changed: str, condition: str) -> cst.IfExp:
    """``(changed if condition else value)``."""
    return cst.IfExp(
        test=expression(condition),
        body=expression(changed),
        orelse=_parenthesized(value),
        lpar=[cst.LeftParen()],
        rpar=[cst.RightParen()],
    )


def _parenthesized(value: cst.BaseExpression) -> cst.BaseExpression:
    """A value that can stand behind ``else``."""
    if isinstance(value, cst.IfExp | cst.Lambda | cst.GeneratorExp) and not value.lpar:
        return value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return value
