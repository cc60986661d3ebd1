"""Loops as the source in a Case has them: where they are, and what can end them.

A host that runs ahead of its device is long past the function whose calls hang, so that no stack
tells its loops.  And a loop of as many rounds on every rank ends on none for want of input: who
left it sooner was told to, and who left it with fewer operations did not make them all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.flight_recorder.columns import Frame
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.source_functions import UNREADABLE, innermost, parsed

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
#: Builtin functions that hand on as many items as they are given.
_AS_MANY = frozenset({"enumerate", "reversed"})
#: Methods of ``torch.nn.Module`` that list what a model is made of, which is no input.
_PARTS = frozenset({"buffers", "named_buffers", "named_parameters", "parameters"})

#: Methods without arguments that tell a state: of tensors, of events of CUDA, of works and futures,
#: of ``threading`` and of queues.
_STATES = frozenset(
    {"done", "empty", "is_alive", "is_completed", "is_set", "item", "locked", "qsize", "query"}
)


@dataclass(frozen=True)
class LoopEnd:
    """The end of a loop of the source.

    ``alike``: by its own count it has as many rounds on every rank.
    """

    alike: bool
    #: Lines of the statements that leave it before that.
    exits: tuple[int, ...]
    #: One of these, or an exception that is handled around it, may leave it because an iterator
    #: had nothing more to give.
    may_lack_input: bool


def is_behind_loop_of(facts: CaseFacts, mine: Sequence[Frame], theirs: Sequence[Frame]) -> bool:
    """True if one call was made behind a loop of the function in which the other was made."""
    for here, there in zip(reversed(mine), reversed(theirs), strict=False):
        if here == there:
            continue
        if (here.file, here.function) != (there.file, there.function):
            return False
        return any(first <= there.line <= last < here.line for first, last in _loops(facts, here))
    return False


def loop_end(facts: CaseFacts, file: str, first: int) -> LoopEnd | None:
    """The end of the loop that begins in that line; None where its source is not there."""
    nodes = _loop_nodes(facts, file, first)
    end = next((_end_of(node) for node in nodes if node.lineno == first), None)
    if end is None or not handles_exceptions(facts, file, first):
        return end
    return replace(end, may_lack_input=True)


def ends_within(facts: CaseFacts, file: str, first: int) -> list[LoopEnd]:
    """The ends of the loops that lie within the one that begins in that line."""
    nodes = _loop_nodes(facts, file, first)
    outer = next((node for node in nodes if node.lineno == first), None)
    inside = ast.walk(outer) if outer is not None else ()
    return [_end_of(node) for node in inside if isinstance(node, _LOOPS) and node is not outer]


def ends_around(facts: CaseFacts, frame: Frame) -> list[LoopEnd | None]:
    """The ends of the loops around a line in its function; None for all if that is not there."""
    nodes = _loop_nodes(facts, frame.file, frame.line)
    if not nodes and function_at(facts, frame.file, frame.line) is None:
        return [None]
    return [_end_of(n) for n in nodes if n.lineno <= frame.line <= (n.end_lineno or n.lineno)]


def _end_of(node: ast.For | ast.AsyncFor | ast.While) -> LoopEnd:
    exits = list(_exits(node.body, of_this=True))
    below = list(ast.walk(node))
    handlers = [one for one in below if isinstance(one, ast.ExceptHandler)]
    handled = {id(one) for handler in handlers for one in ast.walk(handler)}
    draws = any(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "next"
        for one in below
    )
    return LoopEnd(
        not isinstance(node, ast.While) and _is_constant(node.iter),
        tuple(sorted(one.lineno for one in exits)),
        draws or any(id(one) in handled for one in exits),
    )


def is_condition_of_while(facts: CaseFacts, file: str, line: int) -> bool:
    """True of a line on which a ``while`` loop, which calls nothing else, asks for a state."""
    return any(
        isinstance(node, ast.While)
        and node.test.lineno <= line <= (node.test.end_lineno or line)
        and not any(isinstance(one, ast.Call) for part in node.body for one in ast.walk(part))
        and all(_asks_for_state(one) for one in ast.walk(node.test) if isinstance(one, ast.Call))
        for node in _loop_nodes(facts, file, line)
    )


def _asks_for_state(call: ast.Call) -> bool:
    """True of a method of a tensor, an event or a queue that only tells its state."""
    plain = isinstance(call.func, ast.Attribute) and not (call.args or call.keywords)
    return plain and call.func.attr in _STATES  # type: ignore[attr-defined]


def handles_exceptions(facts: CaseFacts, file: str, line: int) -> bool | None:
    """True if the function handles exceptions of that line, such as the end of an iterator.

    None where its source is not there.
    """
    tree = function_at(facts, file, line)
    if tree is None:
        return None
    return any(
        node.body[0].lineno <= line <= (node.body[-1].end_lineno or line)
        for node in ast.walk(tree)
        if (isinstance(node, ast.Try) and node.handlers) or _suppresses(node)
    )


def _suppresses(node: ast.AST) -> TypeGuard[ast.With]:
    """True of ``with contextlib.suppress(...)``."""
    return isinstance(node, ast.With) and any(
        isinstance(call := item.context_expr, ast.Call)
        and ast.unparse(call.func).rpartition(".")[2] == "suppress"
        for item in node.items
    )


def _is_constant(items: ast.expr) -> bool:
    """True of a range between numbers, of as many things as the source lists, or a model has."""
    if isinstance(items, ast.Tuple | ast.List):
        return not any(isinstance(one, ast.Starred) for one in items.elts)
    if not isinstance(items, ast.Call):
        return False
    if isinstance(items.func, ast.Attribute):
        return items.func.attr in _PARTS and not items.args
    if not isinstance(items.func, ast.Name):
        return False
    if items.func.id in _AS_MANY:
        return bool(items.args) and _is_constant(items.args[0])
    numbers = all(isinstance(one, ast.Constant | ast.UnaryOp) for one in items.args)
    return items.func.id == "range" and numbers and not items.keywords


def _exits(body: Sequence[ast.AST], *, of_this: bool) -> Iterator[ast.Break | ast.Return]:
    """Statements that leave a loop; a ``break`` in a loop within it leaves only that."""
    for node in body:
        if isinstance(node, ast.Return) or (of_this and isinstance(node, ast.Break)):
            yield node
        elif isinstance(node, _LOOPS):
            yield from _exits(node.body, of_this=False)
            # What follows an inner loop that came to its end is of the outer one.
            yield from _exits(node.orelse, of_this=of_this)
        elif not isinstance(node, _FUNCTIONS):
            yield from _exits(list(ast.iter_child_nodes(node)), of_this=of_this)


def _loops(facts: CaseFacts, frame: Frame) -> list[tuple[int, int]]:
    """First and last line of the loops of the innermost function around a line."""
    return [
        (node.lineno, node.end_lineno or node.lineno)
        for node in _loop_nodes(facts, frame.file, frame.line)
    ]


def _loop_nodes(facts: CaseFacts, file: str, line: int) -> list[ast.For | ast.AsyncFor | ast.While]:
    """The loops of the innermost function around a line."""
    tree = function_at(facts, file, line)
    return [
        node for node in (ast.walk(tree) if tree is not None else ()) if isinstance(node, _LOOPS)
    ]


def function_at(facts: CaseFacts, file: str, line: int) -> ast.AST | None:
    of_file = [
        source
        for host in facts.hosts.values()
        for source in host.read(files.SOURCES)
        if source.file == file
    ]
    if len({source.checksum for source in of_file if source.checksum}) > 1:
        return None  # Hosts have other versions of it.
    source = innermost(of_file, file, line)
    try:
        return parsed(source) if source is not None else None
    except UNREADABLE:
        return None
