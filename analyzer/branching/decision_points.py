"""The statement that sent a culprit another way than its peers, proved by source and call sites.

Two ranks made the same calls up to one, and then each another.  Of all ways through the program
from that call on, those to the one call and those to the other part at some statements.  Where it
is one alone, it is the decision; where there are several, none of them is proved.  Ways that
exceptions take count where a rank is known to have survived one, and where no others lead there.
"""

from __future__ import annotations

import ast
import itertools
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from hanglab.analyzer.branching.call_sites import CallHistory, call_history, current_chain
from hanglab.analyzer.branching.equal_values import EqualValues
from hanglab.analyzer.branching.flow_graph import AGAIN, UNHINDERED
from hanglab.analyzer.branching.partings import CallParting, parting_of
from hanglab.analyzer.branching.program_graph import (
    END,
    BranchesLost,
    Chain,
    FlowStep,
    NotFollowed,
    ProgramGraph,
    ReachedStates,
    State,
    follow,
)
from hanglab.analyzer.branching.recorded_decision import RecordedBranch, RecordedBranches
from hanglab.analyzer.branching.source_code import FunctionCode, Sources
from hanglab.analyzer.facts.case_facts import CaseFacts, once
from hanglab.analyzer.facts.loops import handled_signals
from hanglab.analyzer.facts.program_ends import ending_call
from hanglab.analyzer.verdict import Cause, Decision, DecisionValue, DecisionWay, Finding
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.conditions import names_of_condition

#: Culprits, and peers of each, that are compared: more of a large job say the same.
MOST_COMPARED = 8
#: Causes that concern two ranks of different parts in the program.
_BETWEEN_TWO = (Cause.P2P_UNMATCHED, Cause.P2P_DEADLOCK)


#: Causes besides by which ranks of different parts leave what they did in each round before.
_OF_OWN_ROUNDS = (*_BETWEEN_TWO, Cause.GROUP_ORDER)
#: Causes that say that ranks made one call with other values.
_OF_ARGUMENTS = (
    Cause.DTYPE_MISMATCH,
    Cause.REDUCTION_MISMATCH,
    Cause.ROOT_MISMATCH,
    Cause.SIZE_MISMATCH,
    Cause.SPLIT_MISMATCH,
)
#: Causes that say that ranks made other calls, whatever was wrong with their arguments.
_OF_COLLECTIVES = (Cause.SKIPPED_COLLECTIVE, Cause.COLLECTIVE_MISMATCH, Cause.UNEVEN_INPUTS)


@dataclass(frozen=True)
class NoDecision:
    """The reason for which no statement can be named, for people."""

    reason: str


@dataclass(frozen=True)
class Branch:
    """A statement that decides, and the words for the two ways on from it.

    ``rounds`` says of loops, by file and line, how many rounds each of the two began at least.
    """

    code: FunctionCode
    statement: ast.stmt
    mine: str
    theirs: str
    rounds: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    #: Ranks that were seen to go the one way, and the other.
    ranks: tuple[list[int], list[int]] = ([], [])


def decision_of(facts: CaseFacts, finding: Finding) -> Decision | NoDecision | None:
    """The statement at which the ways of a finding's culprits and of their peers part.

    None where nothing shows that a statement parted them, or where the Case holds no source.
    """
    sources = _sources(facts)
    if not sources:
        return None
    culprits = finding.culprits[:MOST_COMPARED]
    for view in (facts.ranks[rank] for rank in culprits if rank in facts.ranks):
        call = ending_call(view)
        if call is not None and (call.thread or call.frame is not None):
            # Another thread ended it, wherever its main thread was, or a line that is told itself.
            return None
        if signals := handled_signals(view):
            return NoDecision(f"rank {view.rank} handles {signals[0]}, which may come at any line")
    peers = [rank for rank in finding.victims if rank not in finding.culprits]
    peers += [rank for rank in facts.others(*finding.culprits) if rank not in peers]
    if finding.cause in _OF_COLLECTIVES and finding.collective is not None:
        # Who is in another group may be in another round, by right.
        members = {*finding.collective.ranks}
        peers = [rank for rank in peers if rank in members] or peers
    peers = peers[:MOST_COMPARED]
    every = {rank: call_history(facts, rank, sources) for rank in sorted(facts.ranks)}
    histories = {rank: one for rank, one in every.items() if one is not None}
    program = ProgramOfRanks(facts, sources, histories, [*culprits, *peers])
    recorded = RecordedBranches(facts, sources, histories)
    found: list[Branch | RecordedBranch] = []
    refusals: list[str] = []
    for culprit, peer in itertools.product(culprits, peers):
        mine, theirs = program.histories.get(culprit), program.histories.get(peer)
        if mine is None or theirs is None:
            continue
        # Either end of a message has its own calls by right.
        by_own_calls = finding.cause in _BETWEEN_TWO
        parting = parting_of(mine, theirs, by_own_calls, placed=False)
        if recorded.has(culprit) and recorded.has(peer):
            try:
                if parting is None and mine.raised:
                    parting = program.parting_before_error(mine, theirs, by_own_calls)
                partly = recorded.is_partly_known(culprit)
                if parting is not None and partly == recorded.is_partly_known(peer):
                    found.append(recorded.branch(culprit, peer, parting))
                    continue
                if partly and theirs.now is not None:
                    found.append(recorded.branch_by_numbers(culprit, peer))
                    continue
            except BranchesLost as reason:
                refusals.append(str(reason))
            except NotFollowed as reason:
                # What was recorded does not tell; what source alone would say may contradict it.
                refusals.append(str(reason))
                continue
        parting = parting_of(mine, theirs, by_own_calls)
        if parting is None:
            continue
        if finding.cause in _OF_ARGUMENTS and parting.mine == parting.theirs.chain:
            continue  # They are at one line, with other values.
        try:
            branch = program.branch(parting, finding.cause, bool(facts.ranks[culprit].handled))
        except NotFollowed as reason:
            refusals.append(str(reason))
            continue
        if branch is not None and not _of_one_round(facts, culprit, peer, branch):
            return NoDecision("the ranks made the same calls in different rounds of a loop")
        if branch is not None:
            found.append(replace(branch, ranks=_ranks_of(parting, list(histories.values()))))
    if not found:
        found = _by_records(recorded, finding, culprits, peers, refusals)
    if not found:
        return NoDecision(refusals[0]) if refusals else None
    first = found[0]
    if any(branch.statement is not first.statement for branch in found):
        return NoDecision("the ranks' ways part at several statements")
    decision = _decision(first)
    return msgspec.structs.replace(decision, values=_values(facts, first))


def _by_records(
    recorded: RecordedBranches,
    finding: Finding,
    culprits: Sequence[int],
    peers: Sequence[int],
    refusals: list[str],
) -> list[Branch | RecordedBranch]:
    """The statement, where ranks of different parts in the program make no calls in one order."""
    found: list[Branch | RecordedBranch] = []
    culprits, peers = ([r for r in ranks if recorded.has(r)] for ranks in (culprits, peers))
    if not culprits:
        return []  # Nothing that was recorded tells, nor that there was no such branch.
    of_collectives = finding.cause in _OF_COLLECTIVES
    for culprit, peer in itertools.product(culprits, peers) if of_collectives else ():
        try:
            found.append(recorded.branch_by_numbers(culprit, peer, _key_of(finding)))
        except NotFollowed as reason:
            refusals.append(str(reason))
    if not found and (of_collectives or finding.cause in _OF_OWN_ROUNDS):
        try:
            found.append(recorded.branch_by_own_rounds(culprits))
        except NotFollowed as reason:
            refusals.append(str(reason))
    return found


def _key_of(finding: Finding) -> tuple[str, int] | None:
    """Group and number of the call that a finding is about."""
    call = finding.collective
    return None if call is None or call.seq is None else (call.group_id, call.seq)


@once
def _sources(facts: CaseFacts) -> Sources:
    return Sources(one for host in facts.hosts.values() for one in host.read(files.SOURCES))


class ProgramOfRanks:
    """The program's ways, and the calls of the ranks that are compared."""

    def __init__(
        self,
        facts: CaseFacts,
        sources: Sources,
        histories: Mapping[int, CallHistory],
        ranks: Sequence[int],
    ) -> None:
        self.histories = {rank: histories[rank] for rank in ranks if rank in histories}
        sites = [site for one in self.histories.values() for site in one.sites if site.chain]
        stacks = {
            chain
            for rank in ranks
            if rank in facts.ranks and (chain := current_chain(facts.ranks[rank], sources))
        }
        stacks |= {site.chain for site in sites if site.whole}
        self._equal = EqualValues(sources)
        self._graph = ProgramGraph(sources, stacks, {site.chain for site in sites if site.direct})
        self._known: dict[tuple[object, ...], Branch | None] = {}

    def parting_before_error(
        self, mine: CallHistory, theirs: CallHistory, by_own_calls: bool
    ) -> CallParting | None:
        """The call that a rank passed over before it raised the exception that ended it.

        None where it may have been on its way there.  Raises NotFollowed.
        """
        before = replace(mine, now=mine.raised, died=False)
        parting = parting_of(before, theirs, by_own_calls)
        if parting is None or parting.called or not parting.theirs.chain:
            return None
        places = (parting.mine, parting.theirs.chain)
        raised, call = (self._graph.states(chain) for chain in places)
        # Its line may have raised before the functions that it calls were entered.
        steps = [(state, step.to) for state in raised for step in self._graph.steps(state, False)]
        reached = [*raised, *(to for state, to in steps if len(to) > len(state))]
        on_its_way = not set(call).isdisjoint(reached) or _leads(self._graph, reached, call)
        return None if on_its_way else parting

    def branch(self, parting: CallParting, cause: Cause | None, survived: bool) -> Branch | None:
        """The statement of a parting, worked out once for ranks that did the same."""
        last = None if parting.last is None else parting.last.chain
        key = (last, parting.mine, parting.called, parting.theirs.chain, survived)
        if key not in self._known:
            # Its peers are in a round that it never began: no call of theirs is of its last one.
            left = cause is Cause.UNEVEN_INPUTS
            self._known[key] = branch_of(self._graph, self._equal, parting, survived, left)
        return self._known[key]


def branch_of(
    graph: ProgramGraph, equal: EqualValues, parting: CallParting, survived: bool, left: bool
) -> Branch | None:
    """The one statement that separates the ways to a rank's next call from those to its peer's.

    ``survived``: the rank has handled exceptions.  ``left``: the peer's next call is of a round
    that the rank did not begin.  Raises NotFollowed.
    """
    starts = graph.starts() if parting.last is None else graph.states(parting.last.chain)
    within = _within_a_line(graph, parting)
    if within is not None:
        return within
    mine = [END] if not parting.mine else graph.states(parting.mine)
    theirs = [END] if not parting.theirs.chain else graph.states(parting.theirs.chain)
    if not parting.called and parting.mine and _leads(graph, mine, theirs):
        return None  # It may be on its way to the call.
    if parting.last is not None and not parting.theirs.direct and not left:
        if parting.last.chain[-1] == parting.theirs.chain[-1]:
            raise NotFollowed("one line makes several of the calls, from within torch")
    for exceptions in (True,) if survived else (False, True):
        reached = follow(graph, starts, [mine, theirs], exceptions)
        if len(reached.targets(None)) == 2:
            branch = _only(_parting_branches(equal, starts, reached))
            if branch is None:
                return None
            _refuse_if_it_ended_alike(graph, equal, branch, parting, starts, [mine, theirs])
            return replace(branch, rounds=_rounds(reached))
    if reached.targets(None) == {1} and _leads(graph, theirs, mine):
        raise NotFollowed("it passed its peers' line, which made no call there")
    raise NotFollowed("no way through the source that was kept leads to both calls")


def _refuse_if_it_ended_alike(
    graph: ProgramGraph,
    equal: EqualValues,
    branch: Branch,
    parting: CallParting,
    starts: Sequence[State],
    targets: Sequence[Sequence[State]],
) -> None:
    """Raise NotFollowed of a loop that may have ended alike on both, named for want of others.

    Calls of its own line may be made for what is looped over, and be no rounds.  And an exception
    that a handler took may as well have led past the other's calls, whether or not it was seen.
    """
    loop = branch.statement
    if not isinstance(loop, ast.For | ast.AsyncFor):
        return
    header = branch.code.source.file, loop.lineno
    calls = [chain[-1] for chain in (parting.mine, parting.theirs.chain) if chain]
    if any((call.file, call.line) == header for call in calls):
        raise NotFollowed(f"the loop of line {loop.lineno} makes calls for what it loops over")
    try:
        reached = follow(graph, starts, targets, exceptions=True)
    except NotFollowed:
        return  # So many ways tell nothing more.
    ways = _parting_branches(equal, starts, reached)
    if any(one.statement is not loop for one in ways):
        raise NotFollowed(f"the loop of line {loop.lineno}, or an exception that was handled there")


def _within_a_line(graph: ProgramGraph, parting: CallParting) -> Branch | None:
    """The statement of a line that makes several calls, of which one of the ranks left out some.

    The line's calls follow each other where nothing leads back to it without another call.
    """
    last = parting.last.chain if parting.last is not None else None
    places = (last, parting.mine, parting.theirs.chain)
    chain = next((one for one in (parting.mine, parting.theirs.chain) if places.count(one) > 1), ())
    if not parting.called or not chain:
        return None
    states = graph.states(chain)
    mixed = [state[-1] for state in states if state[-1].code.flow.nodes[state[-1].node].mixed]
    if not mixed or (last == chain and graph.returns(states)):
        return None
    code, number = mixed[0]
    statement = code.flow.nodes[number].statement
    assert statement is not None
    other = "went on from the line"
    here = "made another call of the line"
    return Branch(
        code,
        statement,
        here if parting.mine == chain else other,
        here if parting.theirs.chain == chain else other,
    )


def _leads(graph: ProgramGraph, start: Sequence[State], target: Sequence[State]) -> bool:
    return bool(follow(graph, start, [target], False).targets(None))


def _parting_branches(
    equal: EqualValues, starts: Sequence[State], reached: ReachedStates
) -> list[Branch]:
    """Statements at which two ranks that went together may have gone on to a call each."""
    found: dict[tuple[State, int], Branch] = {}
    for state, steps in reached.steps.items():
        ways = [(step, reached.targets(step.to)) for step in steps]
        mine = [step for step, targets in ways if 0 in targets]
        theirs = [step for step, targets in ways if 1 in targets]
        if not any(one is not other for one in mine for other in theirs):
            continue
        if _meet_again(reached, state):
            continue
        decided = [step.decided_by for step, _ in ways if step.decided_by is not None]
        if not decided:
            raise NotFollowed("the calls around the last common one are not known")
        code, statement = decided[-1]
        here = starts[0] if state is None else state
        if equal.decides_alike(here, statement):
            continue
        only_mine = [step for step in mine if step not in theirs]
        only_theirs = [step for step in theirs if step not in mine]
        # One statement in two calls of its function is two decisions.
        branch = Branch(
            code,
            statement,
            _words_at(statement, only_mine or mine),
            _words_at(statement, only_theirs or theirs),
        )
        if not only_mine and not only_theirs:
            raise NotFollowed(f"line {statement.lineno} leads to both calls, whichever way")
        found.setdefault((here[:-1], id(statement)), branch)
    return list(found.values())


def _meet_again(reached: ReachedStates, state: State | None) -> bool:
    """True if all ways on from a state come through one and the same later state.

    Ranks that went two ways there are together again, and have parted elsewhere if at all.
    """
    # Such a state lies on every way, so on any one.
    for other in _one_way(reached, state):
        beyond = _ways_on(reached, state, other)
        if not any(beyond & targets for targets in reached.ends):
            return True
    return False


def _one_way(reached: ReachedStates, start: State | None) -> list[State]:
    """States between ``start`` and one of the targets, on the shortest way there."""
    before: dict[State, State | None] = {}
    waiting: deque[State | None] = deque([start])
    while waiting:
        state = waiting.popleft()
        for step in reached.steps[state]:
            if step.to in before:
                continue
            before[step.to] = state
            if any(step.to in targets for targets in reached.ends):
                way: list[State] = []
                at = state
                while at != start and at is not None:
                    way.append(at)
                    at = before[at]
                return way
            waiting.append(step.to)
    return []


def _ways_on(reached: ReachedStates, start: State | None, without: State) -> set[State | None]:
    """States that ways from ``start`` come to, but for those through ``without``."""
    found: set[State | None] = set()
    waiting = [step.to for step in reached.steps[start]]
    while waiting:
        state = waiting.pop()
        if state not in found and state != without:
            found.add(state)
            waiting += [step.to for step in reached.steps[state]]
    return found


def _rounds(reached: ReachedStates) -> dict[tuple[str, int], tuple[int, int]]:
    """For each loop on the ways the least rounds of it that lead to either call."""
    loops = {
        step.decided_by
        for steps in reached.steps.values()
        for step in steps
        if step.decided_by is not None and isinstance(step.decided_by[1], ast.For)
    }
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for code, statement in loops:
        least = [_fewest(reached, statement, ends) for ends in reached.ends]
        found[code.source.file, statement.lineno] = (least[0], least[1])
    return found


def _fewest(reached: ReachedStates, loop: ast.stmt, ends: Collection[State | None]) -> int:
    """The fewest rounds of a loop that a way to one of ``ends`` begins."""
    rounds: dict[State | None, int] = {None: 0}
    waiting: deque[State | None] = deque([None])
    while waiting:
        state = waiting.popleft()
        if state in ends:
            return rounds[state]
        for step in reached.steps[state]:
            begins = (
                step.way == AGAIN and step.decided_by is not None and step.decided_by[1] is loop
            )
            if step.to not in rounds or rounds[state] + begins < rounds[step.to]:
                rounds[step.to] = rounds[state] + begins
                # Those of fewer rounds first.
                waiting.append(step.to) if begins else waiting.appendleft(step.to)
    return 0


def _of_one_round(facts: CaseFacts, culprit: int, peer: int, branch: Branch) -> bool:
    """False if counters of loops show that the two made the same calls in different rounds."""
    counters = [
        {
            (shape.file, loop.first): loop.counter
            for shape in facts.ranks[rank].shapes
            for loop in shape.loops
            if loop.counter is not None
        }
        for rank in (culprit, peer)
    ]
    for place, (mine, theirs) in branch.rounds.items():
        if place in counters[0] and place in counters[1]:
            if counters[0][place] - mine != counters[1][place] - theirs:
                return False
    return True


def _words_at(statement: ast.stmt, steps: Sequence[FlowStep]) -> str:
    """Words for ways on; of one past a handler another statement than its own has decided."""
    others = [one.decided_by[1] is not statement for one in steps if one.decided_by is not None]
    if isinstance(statement, ast.Try) and others and all(others):
        return UNHINDERED
    return _words(steps)


def _words(steps: Sequence[FlowStep]) -> str:
    words = [step.way for step in steps if step.way]
    return " or ".join(dict.fromkeys(words)) or "went on"


def _only(branches: Sequence[Branch]) -> Branch | None:
    if len(branches) > 1:
        lines = ", ".join(str(line) for line in sorted({one.statement.lineno for one in branches}))
        raise NotFollowed(f"the ways to the two calls part at several lines ({lines})")
    return branches[0] if branches else None


def _decision(branch: Branch | RecordedBranch) -> Decision:
    mine, theirs = branch.ranks
    line = branch.statement.lineno
    return Decision(
        file=branch.code.source.file,
        line=line,
        function=branch.code.source.function,
        text=branch.code.text(line),
        ways=[DecisionWay(mine, branch.mine), DecisionWay(theirs, branch.theirs)],
    )


def _ranks_of(
    parting: CallParting, histories: Sequence[CallHistory]
) -> tuple[list[int], list[int]]:
    """Ranks whose next call was the one, and the other."""
    mine: list[int] = []
    theirs: list[int] = []
    for history in histories:
        way, rank = _next(history, parting), history.rank
        if way == parting.theirs.chain[-1:]:
            theirs.append(rank)
        elif way is not None and way == parting.mine[-1:]:
            mine.append(rank)
    return mine, theirs


def _values(facts: CaseFacts, branch: Branch | RecordedBranch) -> list[DecisionValue]:
    """Variables of the statement's condition on ranks that stand in its function."""
    names = names_of_condition(branch.statement)
    return [
        DecisionValue(rank, one.name, one.value)
        for rank, view in sorted(facts.ranks.items())
        for one in view.read(files.LOCALS)
        if one.name in names
        and one.file == branch.code.source.file
        and branch.code.source.first_line <= one.line <= branch.code.source.last_line
    ]


def _next(history: CallHistory, parting: CallParting) -> Chain | None:
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
