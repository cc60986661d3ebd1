"""Groups that members made of others, or never: what waits in them, on NCCL and gloo."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from views import C10D, job, progress, user, view

from hanglab.analyzer.catalogue import Stage
from hanglab.analyzer.causes.synchronization.group_creation import group_creation
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
from hanglab.analyzer.graph.wait_for_graph import Wait, WaitKind
from hanglab.analyzer.matching.calls import Call, ProcessGroup
from hanglab.recorder.case.progress_records import OperationCall
from hanglab.recorder.case.records import GroupRecord, StackFrame

MEMBERS = [0, 1, 2, 3]


def rank_of(rank: int, groups: Iterable[str], called: str | None) -> RankView:
    """A rank with groups of these names, held in the first operation of one of them."""
    mine = progress(view(rank, user(20)), 1)
    assert mine.progress is not None
    mine.groups.extend(GroupRecord(name, name, MEMBERS, "nccl") for name in groups)
    if called is not None:
        mine.progress.operations.append(OperationCall(0, "allreduce", called, 10))
    return mine


def accused(views: list[RankView]) -> list[tuple[list[int], float]]:
    facts: CaseFacts = job(views)
    return [(one.finding.culprits, one.finding.confidence) for one in group_creation(facts)]


def test_the_member_that_never_made_the_group_is_named() -> None:
    views = [rank_of(rank, ["0", "1"], "1") for rank in (0, 1, 2)]
    ((culprits, confidence),) = accused([*views, rank_of(3, ["0"], None)])
    assert culprits == [3] and confidence > 0.9


def test_a_rank_of_whose_groups_nothing_is_recorded_is_not_named() -> None:
    views = [rank_of(rank, ["0", "1"], "1") for rank in (0, 1, 2)]
    assert accused([*views, rank_of(3, [], None)]) == []


def test_those_are_not_named_who_wait_under_the_name_that_most_have() -> None:
    """One rank made a group more before it: its peers lack a group of that name."""
    views = [rank_of(rank, ["0", "1"], "1") for rank in (0, 1, 2)]
    assert [who for who, _ in accused([*views, rank_of(3, ["0", "2", "3"], "3")])] == [[3]]


def creating(rank: int, members: str) -> RankView:
    mine = progress(view(rank, StackFrame("new_group", C10D, 5863), user(26)), 1)
    assert mine.progress is not None
    mine.progress.operations.append(OperationCall(0, "new_group", "", 10, members=members))
    return mine


@pytest.mark.parametrize("outsider", [2, 3])
def test_who_stays_away_is_named_where_one_that_is_no_member_waits_too(outsider: int) -> None:
    """A communicator is split off another one: whoever is in that takes part."""
    (away,) = {2, 3} - {outsider}
    views = [*(creating(rank, "[0, 1]") for rank in (0, 1, outsider)), rank_of(away, ["0"], None)]
    ((culprits, confidence),) = accused(sorted(views, key=lambda view: view.rank))
    assert culprits == [away] and confidence > 0.9


def test_who_is_no_member_is_not_named_where_members_wait_alone() -> None:
    """With use_local_synchronization nobody else is needed."""
    views = [creating(rank, "[0, 1]") for rank in (0, 1)]
    assert accused([*views, *(rank_of(rank, ["0"], None) for rank in (2, 3))]) == []


def made(rank: int, asked: list[list[int]], mine: list[int]) -> RankView:
    """A rank on gloo that asked for groups of these members, and has group "1" of ``mine``."""
    one = progress(view(rank, user(20)), 1)
    assert one.progress is not None
    one.groups = [GroupRecord("1", "1", mine, "gloo")]
    one.progress.operations = [
        OperationCall(n, "new_group", "", n, members=str(members))
        for n, members in enumerate(asked)
    ]
    return one


@pytest.mark.parametrize("wrong", [1, 3])
def test_who_made_the_group_of_others_is_named_where_a_member_waits_in_it(wrong: int) -> None:
    usual = [MEMBERS, [1, 3]]
    views = [made(rank, usual, [1, 3]) for rank in MEMBERS]
    views[wrong] = made(wrong, [MEMBERS, [wrong]], [wrong])
    facts = job(views)
    waiter = 4 - wrong
    group = ProcessGroup("1", (1, 3), "pair")
    facts.graph.waits = [Wait(Call(waiter, group, 1, "all_reduce"), WaitKind.NOT_ENTERED, (wrong,))]
    (found,) = group_creation(facts)
    assert found.finding.culprits == [wrong]
    # The root of what waits there, whatever that looks like.
    assert found.stage is Stage.EXIT
    # Groups that differ by rank and have names of their own are no fault.
    views[wrong].groups = [GroupRecord("7", "7", [wrong], "gloo")]
    assert not list(group_creation(facts))


@pytest.mark.parametrize("wrong", [1, 2])
def test_who_made_groups_in_another_order_is_named_where_their_first_use_waits(wrong: int) -> None:
    """Communicators are made late: each waits in another's, for who has none of that name."""
    halves = {"1": [0, 1, 2], "2": [1, 2, 3]}
    views = []
    for rank in MEMBERS:
        one = progress(view(rank, user(20)), 1)
        assert one.progress is not None
        order = list(halves.values())[:: -1 if rank == wrong else 1]
        mine = {str(n): members for n, members in enumerate(order, 1) if rank in members}
        one.groups = [GroupRecord(name, "half", members, "nccl") for name, members in mine.items()]
        one.progress.operations = [
            *(OperationCall(n, "new_group", "", n, 5, members=str(m)) for n, m in enumerate(order)),
            OperationCall(9, "broadcast", next(iter(mine)), 10),
        ]
        views.append(one)
    ((culprits, confidence),) = accused(views)
    assert culprits == [wrong] and confidence > 0.9


def test_halves_that_make_their_own_groups_alone_share_a_name_and_are_all_named() -> None:
    """Each rank calls new_group for its own half only, so that both are the second by count."""
    halves = [[0, 1], [0, 1], [2, 3], [2, 3]]
    views = [made(rank, [MEMBERS, half], half) for rank, half in enumerate(halves)]
    facts = job(views)
    assert not list(group_creation(facts))  # nobody waits there
    call = Call(1, ProcessGroup("1", (0, 1), "half"), 1, "all_reduce")
    facts.graph.waits = [Wait(call, WaitKind.NOT_ENTERED, (0,))]
    (found,) = group_creation(facts)
    assert (found.finding.culprits, found.finding.confidence) == (MEMBERS, 0.5)
    assert "ranks 0 and 1 asked for [0, 1]" in found.finding.summary
    # Under names of their own, as by local synchronisation, they are no fault.
    for one in views[2:]:
        one.groups = [GroupRecord("7", "7", [2, 3], "gloo")]
    assert not list(group_creation(facts))
