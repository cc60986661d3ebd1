"""Ranks whose first operation of a group waits for members that never made it, on NCCL."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from views import C10D, job, progress, user, view

from hanglab.analyzer.causes.synchronization.group_creation import group_creation
from hanglab.analyzer.facts.case_facts import CaseFacts, RankView
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
