"""Ranks whose calls are of no one order: by numbers, by their own rounds, and where one raised."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hanglab.analyzer.branching.call_sites import CallHistory, ProgramCall
from hanglab.analyzer.branching.decision_points import ProgramOfRanks
from hanglab.analyzer.branching.own_rounds import OwnRounds, the_departure
from hanglab.analyzer.branching.program_graph import Chain, NotFollowed, ProgramPlace
from hanglab.analyzer.branching.recorded_decision import RecordedBranches
from hanglab.analyzer.branching.source_code import Sources
from hanglab.recorder.agent.sources import functions_of
from hanglab.recorder.case import branch_layout as layout
from hanglab.recorder.case.branch_trace import BranchPlace, BranchTrace, TakenBranch

TEXT = """\
def exchange(counts, odd):
    if not odd:
        all_reduce(counts)
    return counts

def main():
    for step in loader:
        if rank == 0:
            send(step)
        counts = exchange(step, odd)
        sizes = empty(counts)
        all_to_all(sizes)

main()
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(TEXT)
    return str(path)


def sources_of(file: str) -> Sources:
    places = [("<module>", 14), ("main", 8), ("exchange", 3)]
    return Sources(functions_of(file, places, 1 << 62))


class Rank:
    """Calls and branches of one rank of the program, one a millisecond."""

    def __init__(self, file: str, number: int) -> None:
        self.file, self.number, self.now = file, number, 0
        #: In this round the condition of line 2 has another operand evaluated.
        self.asks_at = -1
        self.sites: list[ProgramCall] = []
        self.branches: list[TakenBranch] = []

    def chain(self, *lines: int) -> Chain:
        names = ("<module>", "main", "exchange")
        return tuple(
            ProgramPlace(self.file, name, line)
            for name, line in zip(names, (14, *lines), strict=False)
        )

    def call(self, *lines: int, seq: int | None = None) -> None:
        self.now += 1
        key = None if seq is None else ("0", seq)
        site = ProgramCall(self.chain(*lines), True, key, True, at_ns=self.now)
        self.sites.append(site)

    def take(self, line: int, column: int, kind: int) -> None:
        self.now += 1
        self.branches.append(TakenBranch(self.now, BranchPlace(self.file, line, column), kind))

    def round(self, step: int, odd: bool) -> None:
        self.take(7, 4, layout.LOOP_AGAIN)
        self.take(8, 8, layout.IF_PASSED if self.number else layout.IF_TAKEN)
        if self.number == 0:
            self.call(9)
        if step == self.asks_at:
            self.take(2, 7, layout.OPERAND)
        self.take(2, 4, layout.IF_PASSED if odd else layout.IF_TAKEN)
        if not odd:
            self.call(10, 3, seq=2 * step)

    def rounds(self, odd_at: int, rounds: int = 5) -> Rank:
        for step in range(rounds):
            self.round(step, step == odd_at)
            self.call(12, seq=2 * step + (step != odd_at))
            if step == odd_at:
                break
        return self

    def history(self, **more: Any) -> CallHistory:
        return CallHistory(self.number, self.sites, True, self.chain(11), False, False, **more)

    def own(self) -> OwnRounds:
        return OwnRounds(self.sites, self.branches, {BranchPlace(self.file, 7, 4)})


def recorded(file: str, ranks: list[Rank]) -> RecordedBranches:
    views = {
        one.number: SimpleNamespace(
            read=lambda _, one=one: BranchTrace(one.branches, True), has_dump=True
        )
        for one in ranks
    }
    histories = {one.number: one.history() for one in ranks}
    facts: Any = SimpleNamespace(ranks=views)
    return RecordedBranches(facts, sources_of(file), histories)


def test_collectives_are_held_against_each_other_by_their_numbers(file: str) -> None:
    """Rank 0 sends besides in each round, and leaves the collective of its fourth out."""
    branch = recorded(file, [Rank(file, 0).rounds(3), Rank(file, 1).rounds(-1)]).branch_by_numbers(
        0, 1
    )
    assert (branch.statement.lineno, branch.ranks) == (2, ([0], [1]))
    assert (branch.mine, branch.theirs) == ("passed over the branch", "took the branch")


def test_a_rank_is_held_against_its_own_rounds(file: str) -> None:
    branch = recorded(
        file, [Rank(file, 0).rounds(4), Rank(file, 1).rounds(-1)]
    ).branch_by_own_rounds([0])
    assert (branch.statement.lineno, branch.ranks) == (2, ([0], [0]))
    assert branch.theirs == "took the branch in all its rounds before"


@pytest.mark.parametrize("culprits", [[0], [2], [0, 1]])
def test_who_went_otherwise_may_be_the_culprit_or_all_others(
    file: str, culprits: list[int]
) -> None:
    odd = [1, 2] if culprits == [0] else culprits[-1:]
    ranks = {n: Rank(file, n).rounds(4 if n in odd else -1).own() for n in range(3)}
    departure, went = the_departure(ranks, culprits)
    assert (departure.place.line, went) == (2, odd)


def test_what_followed_on_a_way_that_all_went_may_part_them(file: str) -> None:
    ranks = {}
    for number in range(3):
        rank = Rank(file, number)
        rank.asks_at = 4
        ranks[number] = rank.rounds(4 if number == 1 else -1).own()
    departure, went = the_departure(ranks, [1])
    assert (departure.place, departure.taken) == (BranchPlace(file, 2, 4), layout.IF_PASSED)
    assert went == [1]


@pytest.mark.parametrize(
    ("place", "later", "meet"),
    [
        # Into a function that is called from behind the statement alone, and out of one.
        ((8, 8), 2, True),
        ((2, 4), 11, True),
        ((2, 4), 9, False),
        ((7, 4), 2, False),
    ],
)
def test_ranks_that_went_two_ways_meet_behind_the_statement(
    file: str, place: tuple[int, int], later: int, meet: bool
) -> None:
    branches = recorded(file, [Rank(file, 0).rounds(3), Rank(file, 1).rounds(-1)])
    places = BranchPlace(file, *place), BranchPlace(file, later, 0)
    assert branches.meets(*places, onward=True) is meet
    assert not branches.meets(*places, onward=False)


def test_the_first_call_shows_nothing_where_roles_may_differ(file: str) -> None:
    ranks = [Rank(file, 0), Rank(file, 1)]
    for rank in ranks:
        rank.round(0, odd=rank.number == 0)
        rank.call(12, seq=0)
    with pytest.raises(NotFollowed):
        recorded(file, ranks).branch_by_numbers(0, 1)


def test_what_all_do_that_come_there_is_done_by_right(file: str) -> None:
    ranks = {n: Rank(file, n).rounds(4).own() for n in range(3)}
    with pytest.raises(NotFollowed):
        the_departure(ranks, [1])


@pytest.mark.parametrize(("raised", "passed_over"), [((11,), True), ((10,), False), ((8,), False)])
def test_a_rank_that_raised_behind_a_call_has_passed_it_over(
    file: str, raised: tuple[int, ...], passed_over: bool
) -> None:
    peer, culprit = Rank(file, 1).rounds(-1), Rank(file, 2).rounds(3)
    del culprit.sites[-1]
    mine = culprit.history(raised=culprit.chain(*raised))
    mine.now, mine.died = None, True
    theirs = peer.history()
    histories = {1: theirs, 2: mine}
    facts: Any = SimpleNamespace(ranks={})
    program = ProgramOfRanks(facts, sources_of(file), histories, [1, 2])
    parting = program.parting_before_error(mine, theirs, by_own_calls=False)
    assert (parting is not None) is passed_over


def test_the_files_own_code_does_not_stand_for_a_function_that_was_not_kept(file: str) -> None:
    """Its place there is empty, and says nothing of what stands in it."""
    sources = Sources(functions_of(file, [("<module>", 14)], 1 << 62))
    assert sources.at(file, 14) is not None
    assert sources.at(file, 1) is None and sources.at(file, 8) is None
