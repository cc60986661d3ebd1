"""The statement that sent a culprit another way than its peers, proved by source and call sites.

Two ranks made the same calls up to one, and then each another.  Of all ways through the program
from that call on, those to the one call and those to the other part at some statements.  Where it
is one alone, it is the decision; where there are several, none of them is proved.  Ways that
exceptions take count where a rank is known to have survived one, and where no others lead there.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from hanglab.analyzer.branching.call_sites import CallHistory, call_history, current_chain
from hanglab.analyzer.branching.partings import Parting, parting_of
from hanglab.analyzer.branching.program_graph import (
    END,
    Chain,
    NotFollowed,
    ProgramGraph,
    Reached,
    State,
    Step,
    follow,
)
from hanglab.analyzer.branching.source_code import FunctionCode, Sources
from hanglab.analyzer.facts.case_facts import CaseFacts, once
from hanglab.analyzer.verdict import Cause, Decision, DecisionWay, Finding, Verdict
from hanglab.recorder.case import evidence_files as files

#: Culprits, and peers of each, that are compared: more of a large job say the same.
MOST_COMPARED = 8
_MINE, _THEIRS = frozenset({0}), frozenset({1})


@dataclass(frozen=True)
class NoDecision:
    """Why no statement can be named, for people."""

    reason: str


@dataclass(frozen=True)
class Branch:
    """A statement that decides, and the words for the two ways on from it."""

    code: FunctionCode
    statement: ast.stmt
    mine: str
    theirs: str


def decision_of(facts: CaseFacts, finding: Finding | Verdict) -> Decision | NoDecision | None:
    """The statement at which the ways of a finding's culprits and of their peers part.

    None where nothing shows that a statement parted them, or where the Case holds no source.
    """
    program = _program(facts)
    if program is None:
        return None
    # Its peers are in a round that it never began, so no call of theirs belongs to its last one.
    left = finding.cause is Cause.UNEVEN_INPUTS
    found: list[tuple[Branch, Parting]] = []
    refusals: list[str] = []
    for culprit in finding.culprits[:MOST_COMPARED]:
        peers = [rank for rank in finding.victims if rank not in finding.culprits]
        peers += [rank for rank in facts.others(*finding.culprits) if rank not in peers]
        for peer in peers[:MOST_COMPARED]:
            parting = program.parting(culprit, peer)
            if parting is None:
                continue
            try:
                survived = bool(facts.ranks[culprit].handled)
                branch = branch_of(program.graph, parting, survived, left)
            except NotFollowed as reason:
                refusals.append(str(reason))
                continue
            if branch is not None:
                found.append((branch, parting))
    if not found:
        return NoDecision(refusals[0]) if refusals else None
    first = found[0][0]
    if any(branch.statement is not first.statement for branch, _ in found):
        return NoDecision("the ranks' ways part at several statements")
    return _decision(first, found[0][1], program.histories)


class _Program:
    """The program's ways, and the calls of each rank that knows them."""

    def __init__(self, facts: CaseFacts, sources: Sources) -> None:
        self.histories: dict[int, CallHistory] = {}
        for rank in facts.ranks:
            history = call_history(facts, rank)
            if history is not None:
                self.histories[rank] = history
        sites = [site for one in self.histories.values() for site in one.sites if site.chain]
        stacks = {chain for view in facts.ranks.values() if (chain := current_chain(view))}
        stacks |= {site.chain for site in sites if site.whole}
        self.graph = ProgramGraph(sources, stacks, {site.chain for site in sites if site.direct})

    def parting(self, culprit: int, peer: int) -> Parting | None:
        mine, theirs = self.histories.get(culprit), self.histories.get(peer)
        return None if mine is None or theirs is None else parting_of(mine, theirs)


@once
def _program(facts: CaseFacts) -> _Program | None:
    sources = Sources(one for host in facts.hosts.values() for one in host.read(files.SOURCES))
    return _Program(facts, sources) if sources else None


def branch_of(graph: ProgramGraph, parting: Parting, survived: bool, left: bool) -> Branch | None:
    """The one statement that separates the ways to a rank's next call from those to its peer's.

    ``survived``: the rank has handled exceptions.  ``left``: the peer's next call is of a round
    that the rank did not begin.  Raises NotFollowed.
    """
    starts = graph.starts() if parting.last is None else graph.states(parting.last.chain)
    mine = [END] if not parting.mine else graph.states(parting.mine)
    theirs = graph.states(parting.theirs.chain)
    if not parting.called and parting.mine and _leads(graph, mine, theirs):
        return None  # It may be on its way to the call.
    if parting.last is not None and not parting.theirs.direct and not left:
        if parting.last.chain[-1] == parting.theirs.chain[-1]:
            raise NotFollowed("one line makes several of the calls, from within torch")
    for exceptions in (True,) if survived else (False, True):
        reached = follow(graph, starts, [mine, theirs], exceptions)
        if len(reached.targets(None)) == 2:
            return _only(_separating(reached))
    raise NotFollowed("no way through the source that was kept leads to both calls")


def _leads(graph: ProgramGraph, start: Sequence[State], target: Sequence[State]) -> bool:
    return bool(follow(graph, start, [target], False).targets(None))


def _separating(reached: Reached) -> list[Branch]:
    """Statements on the ways from which some ways lead to the one call, and some to the other."""
    found: dict[tuple[State, int], Branch] = {}
    for state, steps in reached.steps.items():
        ways = [(step, reached.targets(step.to)) for step in steps]
        ways = [(step, targets) for step, targets in ways if targets]
        if len({targets for _, targets in ways}) < 2:
            continue
        decided = [step.decided_by for step, _ in ways if step.decided_by is not None]
        if not decided:
            raise NotFollowed("the calls around the last common one are not known")
        code, statement = decided[-1]
        # One statement in two calls of its function is two decisions.
        around = () if state is None else state[:-1]
        branch = Branch(code, statement, _words(ways, _MINE), _words(ways, _THEIRS))
        found.setdefault((around, id(statement)), branch)
    return list(found.values())


def _words(ways: Sequence[tuple[Step, frozenset[int]]], targets: frozenset[int]) -> str:
    words = [step.way for step, leading in ways if leading == targets and step.way]
    return " or ".join(dict.fromkeys(words)) or "went on"


def _only(branches: Sequence[Branch]) -> Branch | None:
    if len(branches) > 1:
        lines = ", ".join(str(line) for line in sorted({one.statement.lineno for one in branches}))
        raise NotFollowed(f"the ways to the two calls part at several lines ({lines})")
    return branches[0] if branches else None


def _decision(branch: Branch, parting: Parting, histories: dict[int, CallHistory]) -> Decision:
    mine: list[int] = []
    theirs: list[int] = []
    for rank, history in sorted(histories.items()):
        way = _next(history, parting)
        if way == parting.theirs.chain[-1:]:
            theirs.append(rank)
        elif way is not None and way == parting.mine[-1:]:
            mine.append(rank)
    line = branch.statement.lineno
    return Decision(
        file=branch.code.source.file,
        line=line,
        function=branch.code.source.function,
        text=branch.code.text(line),
        ways=[DecisionWay(mine, branch.mine), DecisionWay(theirs, branch.theirs)],
    )


def _next(history: CallHistory, parting: Parting) -> Chain | None:
    """The place that a rank came to next, from the call after which the ways part."""
    index = parting.index
    if parting.last is not None:
        if (
            index > len(history.sites)
            or history.sites[index - 1].chain[-1:] != parting.last.chain[-1:]
        ):
            return None
    if index < len(history.sites):
        return history.sites[index].chain[-1:]
    return () if history.now is None else history.now[-1:]
