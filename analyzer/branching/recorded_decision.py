"""The statement behind a branch at which ranks were recorded to part, and its words."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from hanglab.analyzer.branching import flow_graph as words
from hanglab.analyzer.branching.call_sites import CallHistory, ProgramCall
from hanglab.analyzer.branching.equal_values import EqualValues
from hanglab.analyzer.branching.flow_graph import ENTRY
from hanglab.analyzer.branching.own_rounds import OwnRounds, the_departure
from hanglab.analyzer.branching.partings import CallParting, same_site, shift_of
from hanglab.analyzer.branching.program_graph import Chain, NotFollowed, Point
from hanglab.analyzer.branching.source_code import FunctionCode, Sources
from hanglab.analyzer.branching.taken_branches import BranchParting, RecordedPair, RecordedRank
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.recorder.case import branch_layout as layout
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.branch_trace import BranchPlace, BranchTrace

_WORDS = {
    layout.IF_TAKEN: words.TAKEN,
    layout.LOOP_AGAIN: words.AGAIN,
    layout.LOOP_LEFT: words.LEFT,
    layout.VALUE_TAKEN: "took the first value",
    layout.OTHER_VALUE: "took the other value",
    layout.OPERAND: "went on to the next operand",
    layout.ELEMENT: "had another element",
    layout.BLOCK_ENDED: "came to the end of the block",
    layout.NO_CASE: words.NO_CASE,
}
#: Of whom did not go the lone way that the other went.
_WITHOUT = {
    layout.OPERAND: "did not go on to the next operand",
    layout.ELEMENT: "had no other element",
    layout.BLOCK_ENDED: words.BY_EXCEPTION,
}


@dataclass(frozen=True)
class RecordedBranch:
    """A statement, the words for the ways on from it, and who was recorded to go which."""

    code: FunctionCode
    statement: ast.stmt
    mine: str
    theirs: str
    ranks: tuple[list[int], list[int]]


class RecordedBranches:
    """The branches that the ranks of a job were recorded to take."""

    def __init__(
        self, facts: CaseFacts, sources: Sources, histories: Mapping[int, CallHistory]
    ) -> None:
        self._facts = facts
        self._sources = sources
        self._histories = histories
        self._ranks: dict[int, RecordedRank] = {}

    def has(self, rank: int) -> bool:
        """True if the rank's branches were recorded."""
        return rank in self._histories and self._trace(rank) is not None

    def is_partly_known(self, rank: int) -> bool:
        """True if of a rank's calls only those that passed Python are known."""
        return not self._facts.ranks[rank].has_dump

    def branch(self, culprit: int, peer: int, parting: CallParting) -> RecordedBranch:
        """The statement at which the two parted.  Raises NotFollowed."""
        chains = [parting.mine, parting.theirs.chain]
        chains += [] if parting.last is None else [parting.last.chain]
        called = parting.called and bool(parting.theirs.chain)
        pair = RecordedPair(
            self._rank(culprit), self._rank(peer), parting.shift, parting.index, called
        )
        at, found = self._parting(pair, chains)
        return self._branch(found, self._ranks_of(peer, at + parting.shift, found))

    def branch_by_numbers(
        self, culprit: int, peer: int, key: tuple[str, int] | None = None
    ) -> RecordedBranch:
        """The statement, by the calls that groups and numbers tell alone.

        Others of theirs may not be known, or be theirs by right.  At the call of ``key`` the two
        are known to have parted, whatever their places are.  Raises NotFollowed.
        """
        partly = self.is_partly_known(culprit)
        sites = [self._histories[rank].sites for rank in (culprit, peer)]
        keyed = [{site.key: site for site in of_rank if site.key is not None} for of_rank in sites]
        common = [one for one in keyed[0] if one in keyed[1]]
        alike = (one != key and same_site(keyed[0][one], keyed[1][one]) for one in common)
        last = next((i for i, same in enumerate(alike) if not same), len(common))
        shown = [[of_rank[one] for one in common] for of_rank in keyed]
        if not partly:
            shown = [
                [*one, *_after(one, of_rank)] for one, of_rank in zip(shown, sites, strict=True)
            ]
        mine, theirs = (
            RecordedRank(calls, self._trace_of(rank))
            for calls, rank in zip(shown, (culprit, peer), strict=True)
        )
        pair = RecordedPair(mine, theirs, 0, last, called=last < len(common))
        # Calls of the culprit that are not known may be those that its peer made on its way.
        calls = [site.at_ns for site in sites[1] if site.at_ns is not None] if partly else None
        _, found = self._parting(pair, [sites[1][-1].chain] if sites[1] else [], calls)
        if not last and not self._went(culprit, found.place, found.theirs):
            raise NotFollowed("the ranks made no call together, and may differ by right")
        return self._branch(found, ([culprit], [peer]))

    def branch_by_own_rounds(self, culprits: Collection[int]) -> RecordedBranch:
        """The statement at which a rank, or all others, went another way than in all rounds before.

        Raises NotFollowed.
        """
        departure, ranks = the_departure(self._own_rounds, culprits)
        place, taken, usual = departure
        branch = self._branch(BranchParting(place, taken, usual), (ranks, ranks))
        return replace(branch, theirs=f"{branch.theirs} in all its rounds before")

    def _went(self, rank: int, place: BranchPlace, kind: int) -> bool:
        """True if a rank has ever gone that way there."""
        return any((one.place, one.kind) == (place, kind) for one in self._trace_of(rank).branches)

    @cached_property
    def _own_rounds(self) -> dict[int, OwnRounds]:
        found = {}
        for rank in filter(self.has, sorted(self._histories)):
            sites = self._histories[rank].sites
            loops = loops_around(self._sources, {site.chain for site in sites})
            found[rank] = OwnRounds(sites, self._trace_of(rank).branches, loops)
        return found

    def _parting(
        self, pair: RecordedPair, chains: Iterable[Chain], calls: Sequence[int] | None = None
    ) -> tuple[int, BranchParting]:
        loops = loops_around(self._sources, chains)
        at = pair.call_of_parting(loops)
        return at, pair.parting_before(at, self.meets, calls, loops, self._pending)

    @cached_property
    def _pending(self) -> set[Chain]:
        sites = (site for one in self._histories.values() for site in one.sites)
        return in_finally(self._sources, {site.chain for site in sites})

    def meets(self, place: BranchPlace, later: BranchPlace, onward: bool) -> bool:
        """True if ``later`` lies behind the statement of ``place``.

        In the same function; or in the same round in one that is called from behind it alone, or
        behind the calls of the function that it is in.
        """
        code, statement, node = statement_of(self._sources, place)
        end = statement.end_lineno or statement.lineno
        if node is not statement and (later.line, later.column) == _start(statement):
            return later.file == place.file  # its condition, and then the statement itself
        there = self._sources.at(later.file, later.line)
        if there is code:
            return later.line > end
        if there is None or not onward:
            return False
        into, out = self._callers(there), self._callers(code)
        entered = bool(into) and all(by is code and line > end for by, line in into)
        left = bool(out) and all(by is there and line < later.line for by, line in out)
        return entered or left

    def _callers(self, called: FunctionCode) -> set[tuple[FunctionCode | None, int]]:
        """Functions and lines that call one, by its name or on some stack."""
        name = called.source.function
        found: set[tuple[FunctionCode | None, int]] = set()
        for code in self._sources.functions():
            assert code.tree is not None
            found |= {
                (self._sources.at(code.source.file, line), line) for line in _calls(code.tree, name)
            }
        chains = {site.chain for one in self._histories.values() for site in one.sites}
        for outer, inner in {pair for chain in chains for pair in pairwise(chain)}:
            if self._sources.at(inner.file, inner.line) is called:
                found.add((self._sources.at(outer.file, outer.line), outer.line))
        return found

    def _branch(self, parting: BranchParting, ranks: tuple[list[int], list[int]]) -> RecordedBranch:
        code, statement, node = statement_of(self._sources, parting.place)
        if EqualValues(self._sources).decides_alike((Point(code, ENTRY),), statement):
            raise NotFollowed("the ranks took one branch in different rounds of a loop")
        return RecordedBranch(code, statement, *ways_of(parting, node), ranks)

    def _trace(self, rank: int) -> BranchTrace | None:
        view = self._facts.ranks.get(rank)
        return None if view is None else view.read(files.BRANCHES)

    def _rank(self, rank: int) -> RecordedRank:
        if rank not in self._ranks:
            sites = self._histories[rank].sites
            self._ranks[rank] = RecordedRank(sites, self._trace_of(rank))
        return self._ranks[rank]

    def _trace_of(self, rank: int) -> BranchTrace:
        trace = self._trace(rank)
        assert trace is not None
        return trace

    def _ranks_of(
        self, peer: int, call: int, parting: BranchParting
    ) -> tuple[list[int], list[int]]:
        """Ranks that went the one way, and the other, before the peer's call of an index."""
        mine: list[int] = []
        theirs = [peer]
        other = self._rank(peer)
        for rank in sorted(self._histories):
            shift = shift_of(self._histories[rank], self._histories[peer])
            if rank == peer or shift is None or not self.has(rank):
                continue
            try:
                pair = RecordedPair(self._rank(rank), other, shift[1] - shift[0], call, called=True)
                found = pair.differences(call - shift[1] + shift[0])
            except NotFollowed:
                continue
            partings = [one.parting for one in found if one.parting is not None]
            here = [one for one in partings if one.place == parting.place]
            if not here:
                theirs.append(rank)
            elif here[0].mine == parting.mine:
                mine.append(rank)
        return mine, sorted(theirs)


def _start(statement: ast.stmt) -> tuple[int, int]:
    return statement.lineno, statement.col_offset


def _calls(tree: ast.AST, name: str) -> Iterator[int]:
    """Lines that call something of a name."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called)) if called == name:
                yield node.lineno


def _after(calls: Sequence[ProgramCall], every: Sequence[ProgramCall]) -> list[ProgramCall]:
    """Calls with a number that a rank made after some of its calls."""
    last = max((one.at_ns or 0 for one in calls), default=0)
    return [one for one in every if one.key is not None and (one.at_ns or 0) > last]


def loops_around(sources: Sources, chains: Iterable[Chain]) -> set[BranchPlace]:
    """Loops that hold the lines of some calls, and of the calls around them."""
    found = set()
    for place in {place for chain in chains for place in chain}:
        code = sources.at(place.file, place.line)
        if code is None or code.tree is None:
            raise NotFollowed(f"there is no source of {place.function}")
        for node in ast.walk(code.tree):
            if isinstance(node, ast.For | ast.AsyncFor | ast.While):
                if node.lineno <= place.line <= (node.end_lineno or node.lineno):
                    found.add(BranchPlace(place.file, node.lineno, node.col_offset))
    return found


def in_finally(sources: Sources, chains: Iterable[Chain]) -> set[Chain]:
    """Calls made in or by way of a ``finally`` block, after which a ``return`` may be resumed."""
    found = set()
    for chain in chains:
        for place in chain:
            code = sources.at(place.file, place.line)
            blocks = [] if code is None or code.tree is None else ast.walk(code.tree)
            for node in blocks:
                last = node.finalbody if isinstance(node, ast.Try) else []
                if last and last[0].lineno <= place.line <= (last[-1].end_lineno or place.line):
                    found.add(chain)
    return found


def statement_of(sources: Sources, place: BranchPlace) -> tuple[FunctionCode, ast.stmt, ast.AST]:
    """The function, the statement and what of it decides.  Raises NotFollowed."""
    code = sources.at(place.file, place.line)
    if code is None or code.tree is None:
        raise NotFollowed("there is no source of the branch at which the ranks parted")
    statement: ast.stmt | None = None
    waiting: list[tuple[ast.AST, ast.stmt | None]] = [(code.tree, None)]
    while waiting:
        node, around = waiting.pop()
        statement = node if isinstance(node, ast.stmt) else around
        here = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        if here == (place.line, place.column) and _decides(node) and statement is not None:
            return code, statement, node
        waiting += [(child, statement) for child in ast.iter_child_nodes(node)]
    raise NotFollowed("the source that was kept has no branch where the ranks parted")


def _decides(node: ast.AST) -> bool:
    kinds = (
        ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.With, ast.Match, ast.IfExp,
        ast.BoolOp, ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp,
    )  # fmt: skip
    return isinstance(node, kinds)


def ways_of(parting: BranchParting, node: ast.AST) -> tuple[str, str]:
    """Words for the ways of a rank and of its peer."""
    kinds = parting.mine, parting.theirs
    mine, theirs = (_way(kind, kinds[1 - i], node) for i, kind in enumerate(kinds))
    return mine, theirs


def _way(kind: int, other: int, node: ast.AST) -> str:
    if kind == 0:
        return _WITHOUT.get(other, "came to no handler")
    if kind == layout.IF_PASSED:
        return words.OTHER if isinstance(node, ast.If) and node.orelse else words.PASSED
    if kind in layout.HANDLERS and isinstance(node, ast.Try):
        return words.to_handler(node.handlers[kind - layout.HANDLERS.start])
    if kind in layout.CASES and isinstance(node, ast.Match):
        return words.to_case(node.cases[kind - layout.CASES.start])
    return _WORDS.get(kind, "went on")
