"""Ranks that share one standard error are not taken for the authors of each other's words."""

from __future__ import annotations

import signal

import pytest

from hanglab.analyzer.facts.case_facts import EarlierException, RankView
from hanglab.analyzer.facts.failures import failure_of
from hanglab.analyzer.facts.stderr_per_rank import separate_stderr
from hanglab.analyzer.logs.tracebacks import fatal_error, printed_tracebacks
from hanglab.recorder.case.records import Clock, Exit, Raised

SURVIVED = 'Traceback (most recent call last):\n  File "a.py", line 8, in f\nValueError: bad\n'
ABORTED = (
    "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  32 vs 16\n"
)
CRASHED = (
    "Fatal Python error: Segmentation fault\n\n"
    "Current thread 0x00007f01 (most recent call first):\n"
    '  File "a.py", line 9 in boom\n'
)


def named(rank: int, text: str) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


def test_a_traceback_that_anybody_may_have_printed_is_nobody_s() -> None:
    views = [RankView(rank, host="a", stderr=SURVIVED) for rank in range(3)]
    separate_stderr(views, {"a": SURVIVED + "W1122 the launcher's\n"})
    assert [view.stderr for view in views] == ["", "", ""]


def test_torch_s_names_tell_them_apart() -> None:
    text = SURVIVED + named(0, SURVIVED.replace("bad", "mine")) + named(1, SURVIVED)
    views = [RankView(rank, host="a", stderr=text) for rank in range(3)]
    separate_stderr(views, {})
    found = [printed_tracebacks(view.stderr) for view in views]
    assert [[one.message for one in mine] for mine in found] == [["mine"], ["bad"], []]


def test_streams_of_their_own_are_left_alone() -> None:
    views = [RankView(0, host="a", stderr=SURVIVED), RankView(1, host="a", stderr="warning\n")]
    separate_stderr(views, {"a": ""})
    assert [view.stderr for view in views] == [SURVIVED, "warning\n"]


def test_an_only_rank_wrote_it_all() -> None:
    views = [RankView(0, host="a", stderr=SURVIVED), RankView(1, host="b", stderr=SURVIVED)]
    separate_stderr(views, {"a": SURVIVED, "b": SURVIVED})
    assert [view.stderr for view in views] == [SURVIVED, SURVIVED]


@pytest.mark.parametrize(("text", "kept"), [(ABORTED, ABORTED), (CRASHED, CRASHED)])
def test_last_words_are_those_of_the_only_rank_that_died_of_a_signal(text: str, kept: str) -> None:
    dead = Exit(Clock(1, 1), None, int(signal.SIGABRT))
    views = [RankView(0, host="a"), RankView(1, host="a", exit=dead)]
    common = SURVIVED + text + named(0, SURVIVED) + SURVIVED
    separate_stderr(views, {"a": common})
    assert views[1].stderr == kept
    assert printed_tracebacks(views[0].stderr)[0].message == "bad"
    if text is CRASHED:
        fatal = fatal_error(views[1].stderr)
        assert fatal is not None and fatal.frames[0].line == 9
    two = [RankView(rank, host="a", exit=dead) for rank in range(2)]
    separate_stderr(two, {"a": text})
    assert [view.stderr for view in two] == ["", ""]


@pytest.mark.parametrize("bytes_of_the_other", ["32 vs 16", "64 vs 16"])
def test_last_words_of_several_are_all_of_theirs_where_each_felt_the_same(
    bytes_of_the_other: str,
) -> None:
    refused = ABORTED.replace("32 vs 16", "op.preamble.length <= op.nbytes. 32 vs 16")
    other = refused.replace("32 vs 16", bytes_of_the_other)
    dead = Exit(Clock(1, 1), None, int(signal.SIGABRT))
    views = [RankView(0, host="a"), *(RankView(rank, host="a", exit=dead) for rank in (1, 2))]
    separate_stderr(views, {"a": refused + other + SURVIVED})
    assert [view.stderr for view in views] == ["", refused + other, refused + other]
    for view in views[1:]:
        failure = failure_of(view)
        assert failure is not None and failure.consequence and failure.differs
        # Nobody knows which numbers are its own, unless all are the same.
        assert ("32 vs 16" in failure.detail) == (refused == other)
    unlike = [RankView(rank, host="a", exit=dead) for rank in (1, 2)]
    separate_stderr(unlike, {"a": refused + CRASHED})
    assert [view.stderr for view in unlike] == ["", ""]


@pytest.mark.parametrize("again", ["bad", "worse", None])
def test_what_an_earlier_attempt_printed_is_not_this_one_s(again: str | None) -> None:
    """All attempts write to the launcher's standard error, and may fail of the same again."""
    lost = 'Traceback (most recent call last):\n  File "a.py", line 3, in g\nx.Lost: gone\n'
    text = named(0, SURVIVED) + named(1, lost) + "W1122 the launcher's\n"
    if again is not None:
        text += named(0, SURVIVED.replace("bad", again))
    views = [RankView(rank, host="a") for rank in range(2)]
    earlier = [
        EarlierException(0, 0, Raised(Clock(1, 1), "ValueError", "bad", [])),
        EarlierException(1, 0, Raised(Clock(2, 2), "Lost", "gone\nmore", [])),
    ]
    separate_stderr(views, {"a": text}, earlier)
    found = [[one.message for one in printed_tracebacks(view.stderr)] for view in views]
    assert found == [[] if again is None else [again], []]


@pytest.mark.parametrize(
    "message", ["\n        Failed to run stage:\n", "Failed to run stage:\n x"]
)
def test_the_first_line_that_says_anything_is_quoted(message: str) -> None:
    raised = Raised(Clock(1, 1), "RuntimeError", message, [])
    view = RankView(0, exceptions=[raised], exit=Exit(Clock(2, 2), 1))
    failure = failure_of(view)
    assert failure is not None and failure.detail == "RuntimeError: Failed to run stage:"
