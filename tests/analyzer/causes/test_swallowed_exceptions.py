"""Exceptions that ranks print and survive: roots of a hang, or noise."""

from __future__ import annotations

import numpy as np
import pytest
from views import C10D, job, progress, user, view

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.boundary import join
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.verdict import Cause
from hanglab.recorder.case.progress_records import OperationCall, Progress
from hanglab.recorder.case.records import Clock, GroupRecord, Raised, StackFrame

MS = 1_000_000
LOADING = (user(44, "load"), user(30, "train_step"), user(20, "main"))


def reducing(rank: int):  # type: ignore[no-untyped-def]
    return view(rank, StackFrame("all_reduce", C10D, 1), user(32, "train_step"), user(20, "main"))


def handled(v, *frames: StackFrame, at: int) -> None:  # type: ignore[no-untyped-def]
    v.handled.append(Raised(Clock(at, at), "OSError", "corrupt", list(frames)))


def dump(rank: int, *entered: int) -> RankDump:
    """A rank that entered an all_reduce at each of these times and finished it."""
    operations = [
        OperationCall(
            i, "allreduce", "0", at, returned_ns=at + 1, completed=True, group_seq=i, shape=(4,)
        )
        for i, at in enumerate(entered)
    ]
    done = Progress(1, rank, 0, 0, 0, None, len(operations), operations)
    joined = join(rank, None, done, [GroupRecord("0", "default_pg", [0, 1, 2], "gloo")], "")
    assert joined is not None and joined.entries is not None
    assert np.array_equal(joined.entries.created_ns, entered)
    return joined


def verdict_on(culprit, peers=None, entered=(100, 200)):  # type: ignore[no-untyped-def]
    known = job([culprit, *(peers or (reducing(0), reducing(2)))], outside=[1])
    known.dumps = {1: dump(1, *entered)}
    return conclude(known)


def test_an_exception_out_of_the_function_of_the_missed_call_is_the_root() -> None:
    rank = view(1, user(60, "report"), user(21, "main"), wchan="do_poll")
    handled(rank, *LOADING, at=150)
    verdict = verdict_on(rank)
    assert (verdict.cause, verdict.culprits) == (Cause.EXCEPTION, [1])
    assert verdict.location is not None and verdict.location.line == 44


@pytest.mark.parametrize(("at", "cause"), [(250, Cause.EXCEPTION), (150, Cause.MISSING_RANK)])
def test_elsewhere_it_counts_only_if_nothing_was_entered_since(at: int, cause: Cause) -> None:
    rank = view(1, user(60, "report"), user(21, "main"), wchan="do_poll")
    handled(rank, user(90, "upload"), user(21, "main"), at=at)
    assert verdict_on(rank).cause is cause


def test_without_its_operations_nobody_knows_what_it_entered_since() -> None:
    rank = view(1, user(60, "report"), user(21, "main"), wchan="do_poll")
    handled(rank, user(90, "upload"), user(21, "main"), at=250)
    known = job([rank, reducing(0), reducing(2)], outside=[1])
    assert conclude(known).cause is Cause.MISSING_RANK


def test_what_healthy_peers_print_too_is_noise() -> None:
    rank, peer = view(1, user(60, "report"), wchan="do_poll"), reducing(0)
    for one in (rank, peer):
        handled(one, user(90, "upload"), user(21, "main"), at=250)
    assert verdict_on(rank, [peer, reducing(2)]).cause is Cause.MISSING_RANK


def test_what_the_rank_survived_before_is_noise() -> None:
    rank = view(1, user(60, "report"), wchan="do_poll")
    for at in (50, 150, 250):
        handled(rank, user(90, "upload"), user(21, "main"), at=at * MS)
    assert verdict_on(rank, entered=(100 * MS, 200 * MS)).cause is Cause.MISSING_RANK


def test_one_that_is_logged_and_printed_is_one() -> None:
    rank = view(1, user(60, "report"), wchan="do_poll")
    for at in (250, 251):
        handled(rank, user(90, "upload"), user(21, "main"), at=at * MS)
    assert verdict_on(rank, entered=(100 * MS, 200 * MS)).cause is Cause.EXCEPTION


def test_a_stopped_process_is_stopped_whatever_it_printed() -> None:
    rank = view(1, user(60, "report"), state="T")
    handled(rank, *LOADING, at=250)
    assert verdict_on(rank).cause is Cause.PROCESS_FROZEN


def test_a_stronger_reason_to_stand_outside_wins() -> None:
    rank = progress(view(1, user(60, "report"), wchan="futex_do_wait"), step=3)
    handled(rank, user(90, "upload"), user(21, "main"), at=250)
    assert verdict_on(rank).cause is Cause.PYTHON_DEADLOCK


@pytest.mark.parametrize(
    ("type_", "cause"), [("OSError", Cause.EXCEPTION), ("StopIteration", Cause.MISSING_RANK)]
)
def test_the_end_of_input_is_handled_for_good(type_: str, cause: Cause) -> None:
    rank = view(1, user(60, "report"), user(21, "main"), wchan="do_poll")
    rank.pending.append(Raised(Clock(300, 300), type_, "", list(LOADING)))
    assert verdict_on(rank).cause is cause


def test_an_interrupt_that_the_rank_survived_is_no_reason() -> None:
    rank = view(1, user(60, "report"), user(21, "main"), wchan="do_poll")
    rank.stderr = (
        "Traceback (most recent call last):\n"
        '  File "/home/me/train.py", line 60, in report\n'
        "KeyboardInterrupt\n"
    )
    assert verdict_on(rank).cause is Cause.MISSING_RANK
