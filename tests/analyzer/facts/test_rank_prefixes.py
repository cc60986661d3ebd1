"""What launchers put before each line of a rank tells whose it is."""

from __future__ import annotations

import pytest

from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.facts.failures import failure_of
from hanglab.analyzer.facts.stderr_per_rank import separate_stderr
from hanglab.analyzer.logs.tracebacks import printed_tracebacks
from hanglab.analyzer.verdict import Cause
from hanglab.recorder.case.records import Clock, Exit, Python, RankProcess

RAISED = (
    'Traceback (most recent call last):\n  File "/w/a.py", line 8, in f\n    g()\nValueError: {}\n'
)
AT = Clock(1, 1)


def ranks() -> list[RankView]:
    """Ranks 4 to 6 of a host, of which 6 ended badly."""
    views = []
    for place, rank in enumerate((4, 5, 6)):
        process = RankProcess(
            pid=100 + rank, rank=rank, world_size=8, started=AT, python=Python("3.11"),
            local_rank=place,
        )  # fmt: skip
        views.append(RankView(rank, host="a", process=process))
    views[2].exit = Exit(AT, 1)
    return views


@pytest.mark.parametrize(
    "prefix",
    [
        "[default{local}]:",
        "[trainer{local}]:",
        "[1,{rank}]<stderr>:",
        "{rank}: ",
        "(RayTrainWorker pid={pid}, ip=10.0.0.7) ",
        "\x1b[1;36m(VllmWorker rank={rank} pid={pid})\x1b[0;0m ",
        "\x1b[36m[rank{rank}]:\x1b[0m ",
        "2025-11-29T11:46:57.123456789Z [rank{rank}]: ",
        "[2024-02-27T21:35:28.926822Z] fa88a9df [rank={rank}] || ",
    ],
)
@pytest.mark.parametrize("named", [False, True], ids=["plain", "torch_names_it"])
def test_a_line_is_that_of_the_rank_before_it(prefix: str, named: bool) -> None:
    views, lines = ranks(), []
    for view in views:
        before = prefix.format(rank=view.rank, local=view.local_rank, pid=view.pid)
        inner = f"[rank{view.rank}]: " if named else ""
        lines += [f"{before}{inner}{line}\n" for line in RAISED.format(view.rank).splitlines()]
    separate_stderr(views, {"a": "".join(lines)})
    found = [printed_tracebacks(view.stderr) for view in views]
    assert [[one.message for one in mine] for mine in found] == [["4"], ["5"], ["6"]]
    failure = failure_of(views[2])
    assert failure is not None and failure.cause is Cause.EXCEPTION
    assert failure.frame is not None and failure.frame.line == 8


@pytest.mark.parametrize(
    "line", ["[loss3]: 2.5\n", "4: of 8 done\n", "(pid=999) warning\n", "[1,77]<stderr>:warning\n"]
)
def test_a_line_that_only_looks_like_it_stays_nobody_s(line: str) -> None:
    """A number that is no rank's there, or one where not all lines have one."""
    views = ranks()
    text = f"{line}step 1\n[rank5]: warning\n"
    separate_stderr(views, {"a": text})
    assert [view.stderr for view in views] == ["", "[rank5]: warning\n", ""]


def test_what_each_wrote_alike_is_each_one_s() -> None:
    """Ranks with streams of their own that fail of the same error."""
    views = ranks()
    for view in views:
        view.stderr = RAISED.format("no module")
    separate_stderr(views, {"a": "the launcher's\n"})
    assert [view.stderr for view in views] == [RAISED.format("no module")] * 3


def test_one_stream_of_all_in_each_one_s_file_is_still_shared() -> None:
    views = ranks()
    text = "".join(f"[default2]:{line}\n" for line in RAISED.format("mine").splitlines())
    text += "[default0]:step 1\n"
    for view in views:
        view.stderr = text
    separate_stderr(views, {})
    assert [len(printed_tracebacks(view.stderr)) for view in views] == [0, 0, 1]
