"""Children of ``subprocess``, whose end nobody has asked for when their rank fails."""

from __future__ import annotations

import signal

from hanglab.recorder.case import evidence_files as files


def test_the_killed_child_of_a_failing_rank_is_told_and_left_to_it(start_job):
    job = start_job("children_program.py", world_size=1)
    assert job.status(0) == 1 << 8
    number, *ends = job.printed(0).split()
    assert ends == ["0", str(-signal.SIGKILL), str(-signal.SIGTERM)]
    (child,) = job.rank(0).read(files.CHILDREN)
    assert (child.pid, child.kind, child.code, child.signal) == (
        int(number), "child", None, signal.SIGKILL,
    )  # fmt: skip
