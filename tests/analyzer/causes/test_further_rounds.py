"""Rounds that one rank has and its peers do not, by what their loaders handed out."""

from __future__ import annotations

import signal

import pytest
from views import ended, job, progress, view

from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.facts.further_rounds import further_rounds
from hanglab.recorder.case.progress_records import Batch, SectionTotal


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
