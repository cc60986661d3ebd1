"""Values of literal expressions, without running the file that they stand in.

Besides Python's own literals these are names and calls of what
:mod:`hanglab.harness` offers, such as ``Cause.CRASH`` or ``Freeze(rank=2, at_step=5)``.
"""

from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Callable, Mapping


class NotLiteral(ValueError):
    """An expression that would have to be run; carries its line."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def offered_names(tree: ast.Module) -> dict[str, object]:
    """Local name -> object, for what the file imports from ``hanglab.harness``.

    A module imported whole is under its local, perhaps dotted, name.
    """
    from hanglab import harness

    names: dict[str, object] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                if node.module == "hanglab.harness" and alias.name in harness.__all__:
                    names[alias.asname or alias.name] = getattr(harness, alias.name)
                elif node.module == "hanglab" and alias.name == "harness":
                    names[alias.asname or alias.name] = harness
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "hanglab.harness":
                    names[alias.asname or alias.name] = harness
    return names


def resolve(node: ast.expr, names: Mapping[str, object]) -> object | None:
    """The object that a name or dotted name stands for, or None."""
    dotted = ast.unparse(node) if isinstance(node, ast.Attribute | ast.Name) else ""
    if dotted in names:
        return names[dotted]
    if isinstance(node, ast.Attribute):
        owner = resolve(node.value, names)
        if owner is not None:
            return getattr(owner, node.attr, None)
    return None


def evaluate(node: ast.expr, names: Mapping[str, object]) -> object:
    """The value of a literal.

    Raises NotLiteral for anything that would have to be run, and for a call
    whose arguments its function refuses.
    """
    if isinstance(node, ast.Tuple):
        return tuple(evaluate(item, names) for item in node.elts)
    if isinstance(node, ast.List):
        return [evaluate(item, names) for item in node.elts]
    if isinstance(node, ast.Set):
        return {evaluate(item, names) for item in node.elts}
    if isinstance(node, ast.Dict) and None not in node.keys:
        return {
            evaluate(key, names): evaluate(value, names)
            for key, value in zip(node.keys, node.values, strict=True)
            if key is not None
        }
    if isinstance(node, ast.Call):
        return _call(node, names)
    if isinstance(node, ast.Attribute | ast.Name):
        value = resolve(node, names)
        if value is not None:
            return value
    else:
        try:
            return ast.literal_eval(node)
        except ValueError:
            pass
    raise NotLiteral(
        f"`{ast.unparse(node)}` is no literal and no name of hanglab.harness",
        node.lineno,
    )


def _call(node: ast.Call, names: Mapping[str, object]) -> object:
    function = resolve(node.func, names)
    if not callable(function):
        raise NotLiteral(
            f"`{ast.unparse(node.func)}` is not offered by hanglab.harness", node.lineno
        )
    positional, named = call_arguments(node, names)
    try:
        refuse_unknown(function, named)
        return function(*positional, **named)
    except (TypeError, ValueError) as refusal:
        raise NotLiteral(f"`{ast.unparse(node)}`: {refusal}", node.lineno) from refusal


def call_arguments(
    node: ast.Call, names: Mapping[str, object]
) -> tuple[list[object], dict[str, object]]:
    """Positional and named arguments of a call; NotLiteral as for :func:`evaluate`."""
    positional = [evaluate(argument, names) for argument in node.args]
    named = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise NotLiteral(f"`**{ast.unparse(keyword.value)}` is no literal", node.lineno)
        named[keyword.arg] = evaluate(keyword.value, names)
    return positional, named


def refuse_unknown(function: Callable[..., object], named: Mapping[str, object]) -> None:
    """Raises TypeError, with what there is, for the name of an argument that there is not."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = [p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    for name in named:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            meant = f"{near[0]}= is near; " if near else ""
            there = ", ".join(f"{one}=" for one in known) or "none"
            raise TypeError(f"there is no argument {name}=; {meant}the arguments are {there}")
