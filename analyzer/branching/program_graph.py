"""The ways from one call site to the next, through the functions that ranks were seen in."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from hanglab.analyzer.branching.flow_graph import ENTRY, EXIT, RAISED, Edge
from hanglab.analyzer.branching.source_code import FunctionCode, Sources, calls_by_name

#: Calls within calls beyond which a way is not followed: a function that calls itself.
DEEPEST = 20
#: States that a search looks at.  A way between two calls of one round has some dozens.
MOST_STATES = 1_000


class NotFollowed(Exception):
    """A way that cannot be followed; the message says why, for people."""


class BranchesLost(NotFollowed):
    """Branches that were recorded do not go back as far as they would have to."""


class ProgramPlace(NamedTuple):
    """A line of a function, as a frame tells it."""

    file: str
    function: str
    line: int


#: Places of a stack, outermost first.
Chain = tuple[ProgramPlace, ...]


class Point(NamedTuple):
    """A node of a function's ways."""

    code: FunctionCode
    node: int


#: A point, after those of the calls around it, outermost first; () is behind the program's end.
State = tuple[Point, ...]
END: State = ()


class FlowStep(NamedTuple):
    """A way from one state to another, and the statement that decides on it, if one does."""

    to: State
    way: str
    decided_by: tuple[FunctionCode, ast.stmt] | None


class ProgramGraph:
    """Ways through the functions of ``sources``, by the calls that stacks and source show.

    ``stacks`` are whole, ``operations`` the chains of calls that always communicate, of which the
    innermost place is enough.
    """

    def __init__(
        self, sources: Sources, stacks: Iterable[Chain], operations: Iterable[Chain]
    ) -> None:
        self._sources = sources
        self._called: dict[Point, list[FunctionCode]] = {}
        self._callers: dict[FunctionCode, set[Point]] = {}
        self._roots: set[FunctionCode] = set()
        self._stacks = set(stacks)
        for state in (state for chain in self._stacks for state in self._known(chain)):
            self._roots.add(state[0].code)
            for outer, inner in itertools.pairwise(state):
                self._note_call(outer, inner.code)
        for code in sources.functions():
            for number, called in calls_by_name(code, sources):
                self._note_call(Point(code, number), called)
        self._operations = {p for chain in set(operations) for p in self._points(chain[-1])}

    def _note_call(self, caller: Point, called: FunctionCode) -> None:
        if called not in self._called.setdefault(caller, []):
            self._called[caller].append(called)
        self._callers.setdefault(called, set()).add(caller)

    def starts(self) -> list[State]:
        """States at the program's beginning."""
        return [(Point(code, ENTRY),) for code in self._roots]

    def states(self, chain: Chain) -> list[State]:
        """States that a chain may stand for: several where only its innermost place is known.

        Raises NotFollowed where the source or the calls around are not known.
        """
        if chain in self._stacks:
            return self._product([self._needed(place, name) for place, name in _with_called(chain)])
        points = self._needed(chain[-1])
        around = self._around(points[0].code, 0)
        if not around:
            raise NotFollowed(f"nothing tells what calls {points[0].code}")
        return [(*state, point) for state in around for point in points]

    def _around(self, code: FunctionCode, depth: int) -> list[State]:
        """The calls that may be around a function."""
        found: list[State] = [()] if code in self._roots else []
        if depth < DEEPEST:
            for caller in self._callers.get(code, ()):
                found += [(*state, caller) for state in self._around(caller.code, depth + 1)]
        if len(found) > MOST_STATES:
            raise NotFollowed(f"{code} is called in too many ways")
        return found

    def communicates(self, state: State) -> bool:
        """True where the program makes a call that always communicates."""
        if not state or state[-1] not in self._operations:
            return False
        code, number = state[-1]
        return not code.flow.nodes[number].may_call

    def after(self, state: State, exceptions: bool) -> Iterator[FlowStep]:
        """Ways on from a state whose own calls have come back."""
        code, number = state[-1]
        node = code.flow.nodes[number]
        around = state[:-1]
        if number == EXIT:
            if not around:
                yield FlowStep(END, "", None)
                return
            yield from self.after(around, exceptions)
            return
        for edge in node.edges:
            yield self._step(around, code, edge, node.statement)
        if exceptions or number == RAISED:
            yield from self._raised(state)

    def returns(self, states: Collection[State]) -> bool:
        """True if ways lead from a line's calls back to one of them, with no other call on them.

        Such that stay on the line do not count.
        """
        lines = {(state[:-1], _line(state)) for state in states}
        waiting = [(step.to, False) for state in states for step in self.after(state, False)]
        seen: set[tuple[State, bool]] = set()
        while waiting and len(seen) < MOST_STATES:
            state, away = waiting.pop()
            if (state, away) in seen or state == END:
                continue
            seen.add((state, away))
            if (state[:-1], _line(state)) not in lines:
                away = True
            elif away:
                return True
            if not away or not self.communicates(state):
                waiting += [(step.to, away) for step in self.steps(state, False)]
        return bool(waiting)

    def _raised(self, state: State) -> Iterator[FlowStep]:
        """Ways of an exception, to the handlers around it."""
        for depth in range(len(state), 0, -1):
            code, number = state[depth - 1]
            node = code.flow.nodes[number]
            for edge in node.exceptions:
                yield self._step(state[: depth - 1], code, edge, node.statement)

    def steps(self, state: State, exceptions: bool) -> list[FlowStep]:
        """Ways on from a state just come to: into the functions that it calls, if any is known."""
        point = state[-1]
        called = self._called.get(point, [])
        if not called or len(state) >= DEEPEST:
            return list(self.after(state, exceptions))
        into = [FlowStep((*state, Point(code, ENTRY)), "", None) for code in called]
        node = point.code.flow.nodes[point.node]
        if node.mixed or node.may_call:
            into += self.after(state, exceptions)
        return into

    def _step(
        self, around: State, code: FunctionCode, edge: Edge, own: ast.stmt | None
    ) -> FlowStep:
        statement = edge.decided_by or (own if edge.way else None)
        decided_by = (code, statement) if statement is not None else None
        return FlowStep((*around, Point(code, edge.to)), edge.way, decided_by)

    def _known(self, chain: Chain) -> list[State]:
        """States that a stack may stand for; none where some source is not known."""
        return self._product([self._points(place, name) for place, name in _with_called(chain)])

    def _product(self, points: Sequence[Sequence[Point]]) -> list[State]:
        return list(itertools.islice(itertools.product(*points), MOST_STATES))

    def _needed(self, place: ProgramPlace, called: str = "") -> list[Point]:
        points = self._points(place, called)
        if points:
            return points
        code = self._sources.at(place.file, place.line)
        if code is None:
            raise NotFollowed(f"the source of {place.function} ({place.file}) is not in the Case")
        raise NotFollowed(
            f"{place.file}: {code.broken}"
            if code.broken
            else f"no statement stands at {place.file}:{place.line}"
        )

    def _points(self, place: ProgramPlace, called: str = "") -> list[Point]:
        code = self._sources.at(place.file, place.line)
        if code is None or code.broken:
            return []
        return [Point(code, number) for number in code.flow.at(place.line, called)]


def _line(state: State) -> tuple[FunctionCode, int]:
    code, number = state[-1]
    statement = code.flow.nodes[number].statement
    return code, -1 if statement is None else statement.lineno


def _with_called(chain: Chain) -> list[tuple[ProgramPlace, str]]:
    """Places of a stack, each with the name of the function that it has called."""
    called = [place.function.rpartition(".")[2] for place in chain[1:]]
    return list(zip(chain, [*called, ""], strict=True))


class ReachedStates(NamedTuple):
    """States on the ways from a start, None, each with its ways on, and where they may lead."""

    steps: dict[State | None, list[FlowStep]]
    leading_to: Sequence[set[State | None]]
    ends: Sequence[frozenset[State | None]]

    def targets(self, state: State | None) -> frozenset[int]:
        """Numbers of the targets to which ways lead from a state."""
        return frozenset(i for i, states in enumerate(self.leading_to) if state in states)


def follow(
    graph: ProgramGraph,
    starts: Sequence[State],
    targets: Sequence[Collection[State]],
    exceptions: bool,
) -> ReachedStates:
    """All ways from ``starts``, whose calls have come back, to the next call that communicates.

    A way ends at a target, at another such call, and at the program's end.  Raises NotFollowed
    where there are too many.
    """
    first = [step for start in starts for step in graph.after(start, exceptions)]
    steps: dict[State | None, list[FlowStep]] = {None: first}
    before: dict[State, list[State | None]] = {}
    ends = {state for states in targets for state in states}
    waiting: list[State | None] = [None]
    while waiting:
        state = waiting.pop()
        for step in steps[state]:
            before.setdefault(step.to, []).append(state)
            if step.to in steps:
                continue
            stops = step.to == END or step.to in ends or graph.communicates(step.to)
            if stops and step.to and (point := step.to[-1]).code.flow.nodes[point.node].mixed:
                line = point.code.flow.nodes[point.node].first
                raise NotFollowed(f"line {line} makes some of its calls always and some not")
            steps[step.to] = [] if stops else graph.steps(step.to, exceptions)
            waiting.append(step.to)
        if len(steps) > MOST_STATES:
            raise NotFollowed("there are too many ways between the calls")
    leading = [_leading(before, states) for states in targets]
    return ReachedStates(steps, leading, [frozenset(states) for states in targets])


def _leading(
    before: dict[State, list[State | None]], states: Collection[State]
) -> set[State | None]:
    """States from which ways lead to one of ``states``."""
    found: set[State | None] = set()
    waiting: list[State | None] = [state for state in states if state in before]
    while waiting:
        state = waiting.pop()
        if state not in found:
            found.add(state)
            if state is not None:
                waiting += before.get(state, [])
    return found
