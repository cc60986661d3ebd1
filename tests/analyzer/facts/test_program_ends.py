"""The call that ended a rank is said only where nothing speaks against it."""

from __future__ import annotations

import pytest

from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.facts.program_ends import describe_program_end, ending_call
from hanglab.recorder.case.progress_records import OperationCall, Progress
from hanglab.recorder.case.records import Clock, Exit, ProgramEnd, Raised, StackFrame

AT = Clock(5_000, 5_000)
LINE = StackFrame("train", "/home/me/train.py", 31)
CALL = ProgramEnd(AT, "sys.exit", 0, LINE)
HARD = ProgramEnd(AT, "os._exit", 0, LINE)
END = ProgramEnd(Clock(6_000, 6_000), "end")


def view(*program_ends: ProgramEnd, code: int | None = 0, entered: int = 4_000) -> RankView:
    progress = Progress(
        pid=1,
        rank=1,
        wall_minus_mono_ns=0,
        heartbeat_mono_ns=0,
        step=0,
        step_started_ns=None,
        operations_total=1,
        operations=[OperationCall(0, "allreduce", "0", entered)],
    )
    end = Exit(Clock(7_000, 7_000), code) if code is not None else None
    return RankView(rank=1, program_ends=list(program_ends), progress=progress, exit=end)


@pytest.mark.parametrize(
    ("rank", "by"),
    [
        (view(CALL, END), CALL),
        (view(HARD), HARD),
        (view(CALL, END, code=None), CALL),
        # Nobody catches that one: another thread of the rank went on until the process was gone.
        (view(HARD, entered=5_500), HARD),
        # It was caught: the rank ended otherwise, went on, or has not ended at all.
        (view(CALL, END, code=1), None),
        (view(CALL, END, entered=5_500), None),
        (view(CALL, code=None), None),
        (view(CALL), None),
        (view(END), None),
        (view(), None),
    ],
)
def test_a_call_ended_the_rank(rank: RankView, by: ProgramEnd | None) -> None:
    assert ending_call(rank) == by


def test_an_exception_is_what_ended_it() -> None:
    rank = view(CALL, END, code=0)
    rank.exceptions.append(Raised(AT, "ValueError", "no", [LINE]))
    assert ending_call(rank) is None


def test_clocks_that_differ_are_laid_side_by_side() -> None:
    # On the job's clock the call was at 5,000; on the host's, which operations have, at 6,000.
    rank = view(CALL, END, entered=5_500)
    rank.clock_ahead_ns = 1_000
    assert ending_call(rank) == CALL


def test_words_and_place() -> None:
    words, location = describe_program_end(view(CALL, END))
    assert words == " by sys.exit(0)"
    assert location is not None and (location.line, location.rank) == (31, 1)
    assert describe_program_end(view(END)) == ("", None)
