"""Ranks that wait for the lock of a file, by who holds it and what the holder does."""

from __future__ import annotations

from views import job, user, view, waiting

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import RankView
from hanglab.analyzer.verdict import Cause
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.records import FileLockWait


def locked_out(rank: int, holder: int, monkeypatch) -> RankView:
    """A rank whose main thread waits for a lock that another one holds."""
    one = view(rank, user(20), wchan="locks_lock_inode_wait")
    assert one.pid is not None
    wait = FileLockWait(one.pid, "FLOCK", "/data/cache.lock", 100 + holder, holder)
    read = one.read
    monkeypatch.setattr(
        one, "read", lambda file: [wait] if file is files.FILE_LOCKS else read(file)
    )
    return one


def test_the_holder_waits_for_those_who_want_the_lock(monkeypatch) -> None:
    ranks = [locked_out(rank, 0, monkeypatch) for rank in (1, 2, 3)]
    verdict = conclude(job([waiting(0), *ranks], outside=[1, 2, 3]))
    assert (verdict.cause, verdict.culprits) == (Cause.PYTHON_DEADLOCK, [0])
    assert verdict.victims == [1, 2, 3] and "/data/cache.lock" in verdict.summary


def test_what_a_holder_does_elsewhere_is_told(monkeypatch) -> None:
    holder = view(0, user(13), wchan="hrtimer_nanosleep")
    verdict = conclude(job([holder, locked_out(1, 0, monkeypatch), waiting(2)], outside=[0, 1]))
    assert (verdict.cause, verdict.culprits) == (Cause.MISSING_RANK, [0])
    assert any(one.source == "file_locks" and one.rank == 1 for one in verdict.evidence)


def test_a_chain_of_locks_ends_at_the_last_holder(monkeypatch) -> None:
    ranks = [locked_out(1, 2, monkeypatch), locked_out(2, 3, monkeypatch)]
    verdict = conclude(job([waiting(0), *ranks, view(3, user(13))], outside=[1, 2, 3]))
    assert verdict.culprits == [3]


def test_two_locks_in_opposite_order(monkeypatch) -> None:
    ranks = [locked_out(1, 2, monkeypatch), locked_out(2, 1, monkeypatch)]
    verdict = conclude(job([waiting(0), *ranks, waiting(3)], outside=[1, 2]))
    assert (verdict.cause, verdict.culprits) == (Cause.PYTHON_DEADLOCK, [1, 2])
