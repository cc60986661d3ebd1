"""Rounds that one rank has and its peers do not, by their loaders and the loops they are in."""

from __future__ import annotations

import signal

import pytest
from views import C10D, ended, job, progress, user, view

from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.facts.further_rounds import further_rounds
from hanglab.recorder.case.progress_records import Batch, OperationCall, SectionTotal
from hanglab.recorder.case.records import CodeLoop, CodeShape, StackFrame


def drew(rank: int, batches: int, asked: int) -> RankView:
    """A rank whose loaders were asked so often, and gave so many batches."""
    one = progress(view(rank), -1)
    assert one.progress is not None
    one.progress.batches = [Batch(at_ns=n, elements=8) for n in range(batches)]
    one.progress.section_totals = [SectionTotal("batch", "input", asked, 1, 1)]
    return one


@pytest.mark.parametrize(
    ("drawn", "asked", "told"),
    [
        (10, 11, True),
        (10, 10, True),  # that its loader ended had not been added up
        (11, 11, False),  # it may have the round, too
    ],
)
def test_a_killed_peer_need_not_show_that_its_loader_ended(
    drawn: int, asked: int, told: bool
) -> None:
    killed = ended(drew(0, drawn, asked), code=None, signal=signal.SIGABRT)
    more = further_rounds(job([killed, drew(1, 11, 11), drew(2, 10, 11)]), [1], [0, 2])
    assert (more is not None and more.words.startswith("11 batches")) is told


def test_loaders_of_which_none_is_known_to_have_ended_tell_no_rounds() -> None:
    """A rank that lives, or the killed one alone, may be about to draw its next batch."""
    killed = ended(drew(0, 10, 10), code=None, signal=signal.SIGABRT)
    assert further_rounds(job([killed, drew(1, 11, 11)]), [1], [0]) is None
    facts = job([drew(0, 10, 10), drew(1, 11, 11), drew(2, 10, 11)])
    assert further_rounds(facts, [1], [0, 2]) is None


def made(one: RankView, *places: tuple[str, int]) -> RankView:
    """The rank with calls on record from some functions and lines."""
    assert progress(one, -1).progress is not None
    assert one.progress is not None
    one.progress.operations = [
        OperationCall(
            index=i, method="allreduce", group="0", group_seq=i, entered_ns=i + 1,
            returned_ns=i + 1,
            wait_entered_ns=None, wait_returned_ns=None, completed=True,
            file="/home/me/train.py", line=line, function=function,
        )
        for i, (function, line) in enumerate(places)
    ]  # fmt: skip
    one.progress.operations_total = len(places)
    return one


@pytest.mark.parametrize(
    ("mine", "theirs", "told"),
    [
        ([("evaluate", 20)], [("train", 52)], False),  # a branch passed it over
        ([("evaluate", 20)], [("evaluate", 20)], True),
        ([("train", 52)], [("train", 52)], True),  # calls within it leave no line
    ],
)
def test_who_never_was_in_a_loop_has_no_fewer_rounds_of_it(
    mine: list[tuple[str, int]], theirs: list[tuple[str, int]], told: bool
) -> None:
    """Rank 0 is in a loop of what it called in line 55; all others stand in line 60 behind that."""
    wait = StackFrame("all_reduce", C10D, 3245)
    inside = made(view(0, wait, user(20, "evaluate"), user(55)), *mine)
    inside.shapes = [CodeShape("/home/me/train.py", "evaluate", 10, 30, [CodeLoop(18, 22, None)])]
    peers = [made(view(rank, wait, user(60)), *theirs) for rank in (1, 2, 3)]
    found = further_rounds(job([inside, *peers]), [0], [1, 2, 3])
    assert (found is not None) is told
