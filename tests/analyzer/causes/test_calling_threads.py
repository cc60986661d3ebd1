"""The line of a finding is that of the thread that makes the call."""

from __future__ import annotations

import pytest
from views import AT, C10D, THREADING, job, user, view

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.flight_recorder.columns import Frame
from hanglab.analyzer.graph.wait_for_graph import Cycle, Wait, WaitKind
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.verdict import Location
from hanglab.recorder.case.records import StackFrame, StackSample, ThreadStack

CALL = StackFrame("all_reduce", C10D, 3245)
JOIN = StackFrame("join", THREADING, 1119)


def with_threads(rank: int, main: list[StackFrame], *others: list[StackFrame]) -> RankView:
    mine = view(rank, *main)
    pid = mine.pid or 0
    threads = [ThreadStack(frames=frames, os_thread_id=pid + 50) for frames in others]
    # A sampler lists threads in any order.
    threads.append(ThreadStack(frames=main, main=True, os_thread_id=pid))
    mine.stacks = [StackSample(at=AT, pid=pid, kind="rank", threads=threads)]
    return mine


@pytest.mark.parametrize(
    ("main", "other", "site", "line"),
    [
        # the helper's call is stuck while the main thread waits for it to end
        ([JOIN, user(19)], [CALL, user(12, "save")], 12, 12),
        # it waits further down than it issued the call
        ([JOIN, user(19)], [CALL, user(14, "save")], 12, 14),
        # both are in calls: the one that is meant
        ([CALL, user(18)], [CALL, user(12, "save")], 12, 12),
        ([CALL, user(18)], [CALL, user(12, "save")], 18, 18),
        # both are in calls, and nobody stands at that line any more
        ([CALL, user(18)], [CALL, user(12, "save")], 77, 18),
        # the call came from the main thread, which has gone on
        ([JOIN, user(19)], [JOIN, user(15, "save")], 18, 19),
    ],
)
def test_the_thread_of_the_call_gives_the_line(
    main: list[StackFrame], other: list[StackFrame], site: int, line: int
) -> None:
    views = [with_threads(r, main, other) for r in range(2)]
    frame = views[0].calling_frame(Location("/home/me/train.py", site, "f", 0))
    assert frame is not None and frame.line == line

    known = job(views)
    (group,) = known.graph.groups
    stack = (Frame("f", "/home/me/train.py", site),)
    calls = tuple(Call(r, group, 7 + r, "all_reduce", stack=stack) for r in range(2))
    known.graph.waits = [Wait(c, WaitKind.NOT_ENTERED, (1 - c.rank,)) for c in calls]
    known.graph.cycles = [Cycle((0, 1), calls, False, deviating=(1,))]
    location = conclude(known).location
    assert location is not None and (location.rank, location.line) == (1, line)
