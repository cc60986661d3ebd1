"""The ways through one function: its statements, and which may follow on which.

A statement of its own is one node, a compound one's header another.  What exceptions may do is
kept apart: nearly every statement may raise, and few do.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hanglab.recorder.case.conditions import suppresses
from hanglab.recorder.case.source_functions import Function

#: Numbers of the nodes that every graph has: where a function begins and ends, and where an
#: exception leaves it.
ENTRY, EXIT, RAISED = 0, 1, 2

#: Words for the ways on; AGAIN begins another round of a loop.
AGAIN = "went on in the loop"
LEFT = "left the loop"
TAKEN = "took the branch"
PASSED = "passed over the branch"
OTHER = "took the other branch"
NO_CASE = "took none of the cases"
BY_EXCEPTION = "left the block by an exception"
UNHINDERED = "met no exception there"

#: Functions of torch.distributed that communicate.  One of the user's own of such a name would
#: stand on the stack itself, below the line that calls it.
COMMUNICATING = frozenset(
    {
        "all_gather",
        "all_gather_coalesced",
        "all_gather_into_tensor",
        "all_gather_object",
        "all_reduce",
        "all_reduce_coalesced",
        "all_to_all",
        "all_to_all_single",
        "barrier",
        "batch_isend_irecv",
        "broadcast",
        "broadcast_object_list",
        "gather",
        "gather_object",
        "irecv",
        "isend",
        "monitored_barrier",
        "new_group",
        "new_subgroups",
        "recv",
        "recv_object_list",
        "reduce",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "scatter",
        "scatter_object_list",
        "send",
        "send_object_list",
        "split_group",
    }
)


class Edge(NamedTuple):
    """A way on from a node, in words where a statement decides on it."""

    to: int
    way: str = ""
    #: The statement that decides, where it is not the node's own.
    decided_by: ast.stmt | None = None


@dataclass
class Node:
    """A statement or a header: the lines that frames tell of it, and the ways on."""

    statement: ast.stmt | None
    first: int
    last: int
    #: What of the statement is worked out here: of a compound one its head.
    parts: Sequence[ast.AST] = ()
    edges: list[Edge] = field(default_factory=list)
    #: Ways that exceptions take which it or what it calls may raise.
    exceptions: tuple[Edge, ...] = ()
    #: It makes some of its calls always and some not, and a line does not tell them apart.
    mixed: bool = False
    #: It may go on without its calls.
    may_call: bool = False


@dataclass(frozen=True)
class _Surroundings:
    """Targets of the statements that leave a block.  ``finals`` are finally blocks on the way."""

    finals: tuple[tuple[ast.stmt, ...], ...] = ()
    stop: int = EXIT
    stop_finals: int = 0
    again: int = EXIT
    handlers: tuple[Edge, ...] = ()


class FlowGraph:
    """All ways through a function, or through a file's own code."""

    def __init__(self, function: Function) -> None:
        self.nodes = [Node(None, -1, -1) for _ in (ENTRY, EXIT, RAISED)]
        first = self._block(function.body, EXIT, _Surroundings())
        self.nodes[ENTRY].edges = [Edge(first)]

    def at(self, line: int, called: str = "") -> tuple[int, ...]:
        """Numbers of the nodes of the narrowest statement that holds a line and may call there.

        ``called`` is the name of the function that it has called, where that is known.  A finally
        block has nodes for each way through it.  Where a line holds several statements that call,
        its nodes count as mixed.
        """
        holding = [n for n, node in enumerate(self.nodes) if node.first <= line <= node.last]
        if not holding:
            return ()
        narrowest = min(self.nodes[n].last - self.nodes[n].first for n in holding)
        holding = [n for n in holding if self.nodes[n].last - self.nodes[n].first == narrowest]
        for names in (frozenset({called}), COMMUNICATING, None):
            calling = [n for n in holding if any(_calls(p, names) for p in self.nodes[n].parts)]
            statements = {id(self.nodes[n].statement) for n in calling}
            if len(statements) > 1:
                for number in calling:
                    self.nodes[number].mixed = True
            if statements:
                return tuple(calling)
        first = self.nodes[max(holding)].statement
        return tuple(n for n in holding if self.nodes[n].statement is first)

    def _new(
        self, statement: ast.stmt, around: _Surroundings, head: Sequence[ast.AST] | None = None
    ) -> int:
        """A node of a statement, or of the ``head`` of a compound one."""
        end = statement.end_lineno or statement.lineno
        if head is not None:
            end = max((getattr(part, "end_lineno", 0) for part in head), default=statement.lineno)
        node = Node(statement, statement.lineno, end, (statement,) if head is None else head)
        if not isinstance(statement, ast.Pass | ast.Break | ast.Continue | ast.Global):
            node.exceptions = around.handlers
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _block(self, body: Sequence[ast.stmt], follow: int, around: _Surroundings) -> int:
        """Number of the node with which a block begins, after which ``follow`` comes."""
        for statement in reversed(body):
            follow = self._statement(statement, follow, around)
        return follow

    def _statement(self, statement: ast.stmt, follow: int, around: _Surroundings) -> int:
        match statement:
            case ast.If():
                return self._if(statement, follow, around)
            case ast.While() | ast.For() | ast.AsyncFor():
                return self._loop(statement, follow, around)
            case ast.Try():
                return self._try(statement, follow, around)
            case ast.With() | ast.AsyncWith():
                return self._with(statement, follow, around)
            case ast.Match():
                return self._match(statement, follow, around)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                number = self._new(statement, around, statement.decorator_list)
                self.nodes[number].edges = [Edge(follow)]
                return number
        number = self._new(statement, around)
        node = self.nodes[number]
        match statement:
            case ast.Return():
                node.edges = [Edge(self._leave(around, 0, EXIT))]
            case ast.Raise():
                node.edges = list(around.handlers) or [Edge(RAISED)]
                node.exceptions = ()
            case ast.Break():
                node.edges = [Edge(self._leave(around, around.stop_finals, around.stop))]
            case ast.Continue():
                node.edges = [Edge(self._leave(around, around.stop_finals, around.again))]
            case _:
                node.edges = [Edge(follow)]
                return self._conditional(statement, number, follow, around)
        return number

    def _conditional(
        self, statement: ast.stmt, number: int, follow: int, around: _Surroundings
    ) -> int:
        """A node before ``number`` where an expression decides whether its calls are made."""
        ways = _ways_of_calls(statement)
        if not isinstance(ways, tuple):
            self.nodes[number].mixed = ways
            return number
        test = self._new(statement, around)
        # Frames tell of the calls, so the lines are those of the node behind.
        self.nodes[test].first = self.nodes[test].last = -1
        self.nodes[test].edges = [Edge(number, ways[0]), Edge(follow, ways[1])]
        if ways[2]:
            self.nodes[number].edges.append(Edge(number))
        return test

    def _leave(self, around: _Surroundings, kept: int, target: int) -> int:
        """The way to ``target`` through the finally blocks that lie on it, innermost first."""
        for index in range(kept, len(around.finals)):
            outer = replace(around, finals=around.finals[:index])
            target = self._block(around.finals[index], target, outer)
        return target

    def _if(self, statement: ast.If, follow: int, around: _Surroundings) -> int:
        number = self._new(statement, around, [statement.test])
        past = OTHER if statement.orelse else PASSED
        self.nodes[number].edges = _known(
            statement.test,
            Edge(self._block(statement.body, follow, around), TAKEN),
            Edge(self._block(statement.orelse, follow, around), past),
        )
        return number

    def _loop(
        self, statement: ast.While | ast.For | ast.AsyncFor, follow: int, around: _Surroundings
    ) -> int:
        head = statement.test if isinstance(statement, ast.While) else statement.iter
        number = self._new(statement, around, [head])
        inner = replace(around, stop=follow, again=number, stop_finals=len(around.finals))
        again = Edge(self._block(statement.body, number, inner), AGAIN)
        left = Edge(self._block(statement.orelse, follow, around), LEFT)
        endless = isinstance(statement, ast.While)
        self.nodes[number].edges = _known(head, again, left) if endless else [again, left]
        if endless or not any(isinstance(part, ast.Call) for part in ast.walk(head)):
            return number
        # What a loop goes over is made once, and what it makes may call in each round.
        self.nodes[number].may_call = True
        items = self._new(statement, around, [head])
        self.nodes[items].edges = [Edge(number)]
        return items

    def _try(self, statement: ast.Try, follow: int, around: _Surroundings) -> int:
        outer, after = around, follow
        if statement.finalbody:
            after = self._block(statement.finalbody, follow, around)
            outer = replace(around, finals=(*around.finals, tuple(statement.finalbody)))
        passing = around.handlers
        if statement.finalbody:
            passing = (
                Edge(self._block(statement.finalbody, RAISED, around), BY_EXCEPTION, statement),
            )
        outer = replace(outer, handlers=passing)
        handlers = tuple(
            Edge(
                self._block(handler.body, after, outer),
                to_handler(handler),
                statement,
            )
            for handler in statement.handlers
        )
        behind = self._block(statement.orelse, after, outer)
        inner = replace(outer, handlers=(*handlers, *passing))
        return self._block(statement.body, behind, inner)

    def _with(self, statement: ast.With | ast.AsyncWith, follow: int, around: _Surroundings) -> int:
        number = self._new(statement, around, [item.context_expr for item in statement.items])
        inner = around
        if any(suppresses(item.context_expr) for item in statement.items):
            past = Edge(follow, BY_EXCEPTION, statement)
            inner = replace(around, handlers=(past, *around.handlers))
        self.nodes[number].edges = [Edge(self._block(statement.body, follow, inner))]
        return number

    def _match(self, statement: ast.Match, follow: int, around: _Surroundings) -> int:
        number = self._new(statement, around, [statement.subject])
        edges = [
            Edge(
                self._block(case.body, follow, around),
                to_case(case),
            )
            for case in statement.cases
        ]
        self.nodes[number].edges = [*edges, Edge(follow, NO_CASE)]
        return number


def to_handler(handler: ast.ExceptHandler) -> str:
    return f"came by an exception to the handler at line {handler.lineno}"


def to_case(case: ast.match_case) -> str:
    return f"took the case at line {case.pattern.end_lineno or case.pattern.lineno}"


def _known(test: ast.expr, taken: Edge, passed: Edge) -> list[Edge]:
    """Both ways on, or the one that a constant leaves."""
    if not isinstance(test, ast.Constant):
        return [taken, passed]
    return [taken] if test.value else [passed]


def _ways_of_calls(statement: ast.stmt) -> tuple[str, str, bool] | bool:
    """Words for making and not making the calls of a statement, and whether it may repeat them.

    False where they are made whenever the statement is, True where only some of them are.
    """
    conditional: dict[int, tuple[str, str, bool]] = {}
    for node in ast.walk(statement):
        parts: Sequence[ast.AST] = ()
        ways = ("made the call", "did not make the call", False)
        match node:
            case ast.BoolOp(values=values):
                parts = values[1:]
            case ast.IfExp(body=body, orelse=orelse):
                # One of the two is made: what the other calls is another way.
                calling = [part for part in (body, orelse) if _calls(part)]
                parts = calling if len(calling) == 1 else ()
            case (
                ast.ListComp(elt=element) | ast.SetComp(elt=element) | ast.GeneratorExp(elt=element)
            ):
                parts = [element]
                ways = ("made the call for an element", "had no element to make the call for", True)
            case ast.DictComp(key=key, value=value):
                parts = [key, value]
                ways = ("made the call for an element", "had no element to make the call for", True)
        for part in parts:
            conditional.update((id(call), ways) for call in _calls(part))
    calls = _calls(statement, COMMUNICATING) or _calls(statement)
    always = [call for call in calls if id(call) not in conditional]
    if always or not calls:
        return any(id(call) in conditional for call in calls)
    return conditional[id(calls[0])]


def _calls(node: ast.AST, names: Collection[str] | None = None) -> list[ast.Call]:
    """Calls in a piece of source: all, or those of functions of some names."""
    found = [one for one in ast.walk(node) if isinstance(one, ast.Call)]
    return found if names is None else [one for one in found if _name(one) in names]


def _name(call: ast.Call) -> str | None:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return None
