"""The branch at which two ranks parted, in programs made up at random and recorded."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from hanglab.analyzer.branching.call_sites import CallHistory, ProgramCall
from hanglab.analyzer.branching.own_rounds import Departure, departures
from hanglab.analyzer.branching.partings import parting_of
from hanglab.analyzer.branching.program_graph import NotFollowed, ProgramPlace
from hanglab.analyzer.branching.recorded_decision import in_finally, loops_around, statement_of
from hanglab.analyzer.branching.source_code import Sources
from hanglab.analyzer.branching.taken_branches import RecordedPair, RecordedRank
from hanglab.recorder.agent.sources import functions_of
from hanglab.recorder.case import branch_layout as layout
from hanglab.recorder.case.branch_trace import BranchPlace, BranchTrace, TakenBranch
from tests.analyzer.branching.made_up_programs import Run, make_up, run

PROGRAMS = 60
QUESTIONS = (3, 5, 8, 13)


def recorded(rank: int, file: str, one: Run, most: int) -> tuple[CallHistory, RecordedRank]:
    """A rank's calls and branches, up to the call that it is still in."""
    made = [i for i, event in enumerate(one.events) if event.communicates][:most]
    sites = [
        ProgramCall(
            tuple(ProgramPlace(file, name, line) for name, line in one.events[i].chain),
            True, None, True, at_ns=2 * i + 1,
        )
        for i in made
    ]  # fmt: skip
    inside = len(made) == most
    history = CallHistory(rank, sites, True, sites[-1].chain if inside else None, False, False)
    last = 2 * made[-1] + 1 if inside else 1 << 62
    branches = [branch for branch in one.branches if branch.at_ns < last]
    return history, RecordedRank(sites, BranchTrace(branches, True))


def sent_apart(statement: ast.stmt, line: int | None) -> bool:
    """True if the statement decides by the question that was asked in a line."""
    if line is None:
        return False
    if isinstance(statement, ast.Try):
        return statement.lineno <= line <= (statement.end_lineno or line)
    # A flag is asked for in the line before.
    return statement.lineno - line in (0, 1)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_is_named_is_where_one_rank_was_answered_otherwise(tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    for seed in range(PROGRAMS):
        text = make_up(seed)
        path = tmp_path / f"made_up_{seed}.py"
        path.write_text(text)
        file = str(path)
        every = [(name, line) for line, name in enumerate(text.splitlines(), 1)]
        sources = Sources(functions_of(file, every, 1 << 62))
        usual = run(text, file, seed, -1, False, recorded=True)
        for odd_at in QUESTIONS:
            odd = run(text, file, seed, odd_at, odd_at == 8, recorded=True)
            lines = [[e.chain for e in one.events if e.communicates] for one in (odd, usual)]
            index = next(
                (i for i, (a, b) in enumerate(zip(*lines, strict=False)) if a != b),
                min(map(len, lines)),
            )
            (mine, one), (theirs, other) = (
                recorded(rank, file, each, index + 1) for rank, each in ((1, odd), (0, usual))
            )
            parting = parting_of(mine, theirs, by_own_calls=False)
            if parting is None or (not parting.mine and not odd.ended):
                continue
            try:
                chains = [site.chain for site in (*mine.sites, *theirs.sites)]
                called = parting.called and bool(parting.theirs.chain)
                pair = RecordedPair(one, other, 0, parting.index, called)
                at = pair.call_of_parting(loops_around(sources, chains))
                pending = in_finally(sources, chains)
                found = pair.parting_before(at, lambda *_: False, pending=pending)
                _, statement, _ = statement_of(sources, found.place)
            except NotFollowed as reason:
                outcomes[str(reason).split(" (")[0]] += 1
                continue
            outcomes["told"] += 1
            if not sent_apart(statement, odd.odd_line):
                wrong.append(f"program {seed}, question {odd_at}: line {statement.lineno}")
    assert not wrong
    assert outcomes["told"] > 0.9 * outcomes.total()


LOOP = BranchPlace("a.py", 4, 0)


def call(line: int, at_ns: int) -> ProgramCall:
    return ProgramCall((ProgramPlace("a.py", "main", line),), True, None, True, at_ns=at_ns)


def taken(at_ns: int, line: int, kind: int) -> TakenBranch:
    return TakenBranch(at_ns, BranchPlace("a.py", line, 0), kind)


def test_a_rank_alone_by_right_is_held_against_its_own_earlier_rounds() -> None:
    def rounds(alone: bool, odd_at: int) -> RecordedRank:
        """In line 5 rank 0 alone comes to a question, of line 6, and then all call in line 9."""
        sites, branches = [], []
        for number in range(4):
            at_ns = 100 * number
            branches.append(TakenBranch(at_ns, LOOP, layout.LOOP_AGAIN))
            branches.append(taken(at_ns, 5, layout.IF_TAKEN if alone else layout.IF_PASSED))
            odd = number == odd_at
            if alone:
                branches.append(taken(at_ns + 1, 6, layout.IF_TAKEN if odd else layout.IF_PASSED))
            sites.append(call(7 if odd else 9, at_ns + 50))
            if odd:
                break
        return RecordedRank(sites, BranchTrace(branches, True))

    pair = RecordedPair(rounds(True, 3), rounds(False, -1), 0, 3, called=True)
    found = pair.parting_before(3, lambda *_: False, loops={LOOP})
    assert (found.place.line, found.mine, found.theirs) == (6, layout.IF_TAKEN, layout.IF_PASSED)
    # In its first round nothing tells that it is not there by right.
    first = RecordedPair(rounds(True, 0), rounds(False, -1), 0, 0, called=True)
    found = first.parting_before(0, lambda *_: False, loops={LOOP})
    assert found.place.line == 5


@pytest.mark.parametrize("way", [layout.IF_PASSED, layout.OPERAND])
def test_calls_that_torch_repeats_part_before_the_one_that_shows_it(way: int) -> None:
    """Three calls of line 6 a round within ``backward()``, of which one rank makes one less or more
    in the third round by the branch before its first; that is seen at their end alone.
    """
    kept = layout.IF_TAKEN

    def rank(odd: bool) -> RecordedRank:
        sites, branches, at_ns = [], [], 0
        for number in range(4):
            at_ns += 100
            branches.append(TakenBranch(at_ns, LOOP, layout.LOOP_AGAIN))
            for place in range(3):
                here = odd and number == 2 and place == 0
                if way == layout.IF_PASSED or here:
                    branches.append(taken(at_ns + 1, 6, way if here else kept))
                repeated = 1 if not here else 0 if way == layout.IF_PASSED else 2
                for _ in range(repeated):
                    at_ns += 10
                    sites.append(call(6, at_ns))
            at_ns += 10
            sites.append(call(9, at_ns))
        return RecordedRank(sites, BranchTrace(branches, True))

    last = 11 if way == layout.OPERAND else 10
    pair = RecordedPair(rank(odd=True), rank(odd=False), 0, last, called=True)
    found = pair.parting_before(last, lambda *_: False, loops={LOOP})
    assert (found.place.line, found.mine) == (6, way)


class TestOwnRounds:
    """A stage that receives four times in lines 5 and 6 and sends in line 8 of each round."""

    def departures(self, odd: str, at: int = 4, rounds: int = 5) -> list[list[Departure]]:
        sites, branches, at_ns = [], [], 0
        for number in range(rounds):
            strikes = number == at
            at_ns += 100
            branches.append(TakenBranch(at_ns, LOOP, layout.LOOP_AGAIN))
            for item in range(3 if strikes and odd == "one round less" else 4):
                branches.append(taken(at_ns + 1, 5, layout.LOOP_AGAIN))
                left_out = strikes and item == 1 and odd == "left out"
                branches.append(
                    taken(at_ns + 2, 6, layout.IF_PASSED if left_out else layout.IF_TAKEN)
                )
                at_ns += 10
                if not left_out:
                    sites.append(call(6, at_ns))
            branches.append(taken(at_ns + 1, 5, layout.LOOP_LEFT))
            if strikes and odd == "one more":
                branches.append(taken(at_ns + 2, 8, layout.OPERAND))
                at_ns += 10
                sites.append(call(8, at_ns))
            if number >= 3 and odd == "shown":
                branches.append(taken(at_ns + 2, 7, layout.IF_TAKEN))
            at_ns += 10
            sites.append(call(8, at_ns))
        return departures(sites, branches, {LOOP, BranchPlace("a.py", 5, 0)})

    @pytest.mark.parametrize(
        ("odd", "line", "way", "usual"),
        [
            ("left out", 6, layout.IF_PASSED, layout.IF_TAKEN),
            ("one more", 8, layout.OPERAND, 0),
            ("one round less", 5, layout.LOOP_LEFT, layout.LOOP_AGAIN),
        ],
    )
    def test_the_branch_of_the_round_that_had_other_calls_is_found(self, odd, line, way, usual):
        assert self.departures(odd) == [[Departure(BranchPlace("a.py", line, 0), way, usual)]]

    def test_what_changes_no_call_is_none(self):
        assert self.departures("shown") == []

    def test_a_few_rounds_are_no_habit(self):
        assert self.departures("left out", at=0, rounds=1) == []


def test_a_call_in_a_finally_block_may_be_made_on_the_way_to_a_return() -> None:
    """In line 5 one rank returns, by way of the call of line 7; its peer goes on to line 8."""

    def rank(odd: bool) -> RecordedRank:
        branches = [taken(0, 5, layout.IF_TAKEN if odd else layout.IF_PASSED)]
        branches.append(taken(20, 9, layout.LOOP_AGAIN) if odd else taken(20, 8, layout.ELEMENT))
        return RecordedRank([call(7, 10), call(9 if odd else 8, 30)], BranchTrace(branches, True))

    pair = RecordedPair(rank(True), rank(False), 0, 1, called=True)
    with pytest.raises(NotFollowed, match="before several calls"):
        pair.parting_before(1, lambda *_: False, pending={call(7, 0).chain})
