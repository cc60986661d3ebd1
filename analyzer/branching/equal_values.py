"""Conditions that ranks in the same round of a program decide alike, by the source alone.

The number of a round, constants and the size of the world are the same on all ranks; what
comes of an attribute, of another call or of an assignment in a branch may not be.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from hanglab.analyzer.branching.program_graph import Point, State
from hanglab.analyzer.branching.source_code import FunctionCode, Sources
from hanglab.recorder.case.source_functions import Function

#: Calls within calls through which an argument is followed.
_DEEPEST = 8
#: Functions of Python's that give the same for the same.
_PURE = frozenset({"abs", "bool", "float", "int", "len", "max", "min", "range", "round"})
#: Of torch.distributed: the same on all ranks.
_OF_WORLD = "get_world_size"


class EqualValues:
    """Tells which conditions ranks that made the same calls so far cannot decide otherwise."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._bindings: dict[FunctionCode, dict[str, list[ast.AST | None]]] = {}

    def decides_alike(self, state: State, statement: ast.stmt) -> bool:
        """True if what the statement at the state's innermost point decides by is the same."""
        match statement:
            case ast.If(test=test) | ast.While(test=test):
                return self._same(test, state, 0)
            case ast.For(iter=ast.Call(func=ast.Name(id="range")) as counted):
                return self._same(counted, state, 0)
        return False

    def _same(self, node: ast.AST, state: State, depth: int) -> bool:
        """True if an expression has one value on all ranks of a round."""
        match node:
            case ast.Constant():
                return True
            case ast.Name(id=name):
                return depth < _DEEPEST and self._same_name(name, state, depth + 1)
            case ast.Call(func=ast.Attribute(attr=name), args=[], keywords=[]) if name == _OF_WORLD:
                return True
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _PURE:
                return all(self._same(one, state, depth) for one in arguments)
            case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.BoolOp() | ast.Tuple():
                parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
                return all(self._same(part, state, depth) for part in parts)
        return False

    def _same_name(self, name: str, state: State, depth: int) -> bool:
        code = state[-1].code
        tree = code.tree
        if tree is None:
            return False
        bound = self._bindings_of(code).get(name, [])
        parameters = _parameters(tree)
        if name in parameters:
            return not bound and self._same_argument(name, parameters, state, depth)
        if bound:
            return all(value is not None and self._same(value, state, depth) for value in bound)
        module = self._sources.module(code.source.file)
        if module is None or module is code:
            return False
        return self._same_name(name, (Point(module, 0),), depth)

    def _same_argument(
        self, name: str, parameters: Sequence[str], state: State, depth: int
    ) -> bool:
        """True if the one call of the function from the line around passes one value."""
        if len(state) < 2:
            return False
        caller = state[-2]
        node = caller.code.flow.nodes[caller.node]
        calls = [
            call
            for part in node.parts
            for call in ast.walk(part)
            if isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id == state[-1].code.source.function
        ]
        if len(calls) != 1:
            return False
        call, index = calls[0], parameters.index(name)
        if any(isinstance(one, ast.Starred) for one in call.args):
            return False
        given = {word.arg: word.value for word in call.keywords}
        if None in given:
            return False
        value = call.args[index] if index < len(call.args) else given.get(name)
        return value is not None and self._same(value, state[:-1], depth)

    def _bindings_of(self, code: FunctionCode) -> dict[str, list[ast.AST | None]]:
        """Values that each name is bound to in a function; None for one that may differ."""
        if code not in self._bindings:
            assert code.tree is not None
            known = {id(target): value for target, value in _known_bindings(code.tree)}
            found: dict[str, list[ast.AST | None]] = {}
            for node in ast.walk(code.tree):
                if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                    found.setdefault(node.id, []).append(known.get(id(node)))
                elif isinstance(node, ast.Global | ast.Nonlocal):
                    for name in node.names:
                        found.setdefault(name, []).append(None)
            self._bindings[code] = found
        return self._bindings[code]


def _parameters(tree: Function) -> list[str]:
    if isinstance(tree, ast.Module):
        return []
    arguments = tree.args
    return [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def _known_bindings(tree: Function) -> list[tuple[ast.Name, ast.AST]]:
    """Names with the values that they have in every run of the function, and round numbers."""
    found: list[tuple[ast.Name, ast.AST]] = []
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name() as target], value=value):
                found.append((target, value))
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                if not any(isinstance(one, ast.Starred) for one in (*targets, *values)):
                    pairs = zip(targets, values, strict=False)
                    found += [(one, value) for one, value in pairs if isinstance(one, ast.Name)]
    for node in ast.walk(tree):
        match node:
            case ast.For(target=ast.Name() as target, iter=ast.Call(func=ast.Name(id="range"))):
                found.append((target, _first_number(node.iter)))
            case ast.For(
                target=ast.Tuple(elts=[ast.Name() as target, *_]),
                iter=ast.Call(func=ast.Name(id="enumerate"), args=[_], keywords=[]),
            ):
                found.append((target, ast.Constant(0)))
    return found


def _first_number(counted: ast.expr) -> ast.AST:
    """The values that the number of a round depends on: where ``range`` begins, and its step."""
    match counted:
        case ast.Call(args=[_]):
            return ast.Constant(0)
        case ast.Call(args=[first, _]):
            return first
        case ast.Call(args=[first, _, step]):
            return ast.Tuple([first, step], ast.Load())
    return counted
