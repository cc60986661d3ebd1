"""What is watched of a job while it shows bit by bit which ranks it has."""

from __future__ import annotations

from hanglab.harness.watching.finding import FoundJob
from hanglab.harness.watching.job_pace import JobPauses
from hanglab.harness.watching.pace import PaceLimits
from hanglab.harness.watching.readings import RankReader
from hanglab.harness.watching.watched_jobs import WatchedJob, WatchedJobs
from hanglab.recorder.attach.tree import FoundRank


def found(key: str, *pids: int) -> FoundJob:
    ranks = {pid: FoundRank(pid, pid, 4, 0, 0, "", "") for pid in pids}
    return FoundJob((key,), f"job {key}", key, ranks)


def look(jobs: WatchedJobs, *now: FoundJob, at_s: float = 0.0) -> list[WatchedJob]:
    """Takes in what a search has found, as the watch does."""
    taken = []
    for one in now:
        job = jobs.take(one) or jobs.add(WatchedJob(one, JobPauses(PaceLimits(), 0.0)))
        job.readers = {pid: RankReader(pid, 0) for pid in one.ranks}
        taken.append(job)
    jobs.keep({one.key for one in now}, at_s)
    return taken


def test_parts_of_a_job_become_one_and_nothing_of_them_is_watched_twice() -> None:
    jobs = WatchedJobs()
    first, second = look(jobs, found("a", 1), found("b", 2))
    (whole,) = look(jobs, found("a", 1, 2))
    assert whole is first and [*jobs] == [first]
    assert not second.readers


def test_what_most_of_its_ranks_were_watched_as_goes_on_under_another_key() -> None:
    """Its lowest rank, by which it is called, has come last."""
    jobs = WatchedJobs()
    _, most = look(jobs, found("a", 0), found("b", 1, 2))
    most.stopped = True
    (whole,) = look(jobs, found("a", 0, 1, 2))
    assert whole is most and whole.stopped and whole.found.name == "job a"
    assert [*jobs] == [whole]
    assert look(jobs, found("a", 0, 1, 2)) == [whole]


def test_ranks_that_turn_out_to_be_another_jobs_leave_it() -> None:
    jobs = WatchedJobs()
    (both,) = look(jobs, found("a", 1, 2))
    first, second = look(jobs, found("b", 2), found("a", 1))
    assert first is not second and {*first.readers} == {2} and {*second.readers} == {1}
    assert both in (first, second) and len([*jobs]) == 2


def test_a_job_that_comes_again_is_the_same_until_it_was_away_for_long() -> None:
    jobs = WatchedJobs()
    (job,) = look(jobs, found("a", 1))
    look(jobs, at_s=10.0)
    assert not job.readers and job.gone_s == 10.0
    assert look(jobs, found("a", 7), at_s=20.0) == [job]
    assert job.gone_s is None
    look(jobs, at_s=30.0)
    look(jobs, at_s=3629.0)
    assert [*jobs] == [job]
    look(jobs, at_s=3631.0)
    assert not [*jobs]
