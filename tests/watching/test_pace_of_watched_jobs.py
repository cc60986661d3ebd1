"""The detector of ``hanglab watch``, on streams of readings with a clock of their own."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hanglab.harness.watching.job_pace import JobPauses
from hanglab.harness.watching.pace import PaceLimits, Pauses
from hanglab.harness.watching.signs import RankActivity, Signs

LIMITS = PaceLimits()
NOTHING = Signs(None, 0, 0, 0, 0.0)


def grown(signs: Signs, **more: float) -> Signs:
    return signs._replace(
        **{name: getattr(signs, name) + value for name, value in more.items()}  # type: ignore[arg-type]
    )


def old_pace() -> Pauses:
    """The pace of a job that is past its warming up."""
    return Pauses(LIMITS, 0.0, age_s=10_000.0)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.floats(0.2, 119.0), min_size=1, max_size=60))
def test_pauses_below_the_least_are_never_unusual(pauses: list[float]) -> None:
    pace, at = old_pace(), 0.0
    for pause in pauses:
        while pause > 0:
            at += min(pause, 2.0)
            pause -= 2.0
            pace.look(at, False)
            assert not pace.unusual
        pace.look(at, True)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.floats(1.0, 900.0), max_size=30),
    st.booleans(),
    st.floats(0.0, 10_000.0),
)
def test_a_pause_that_does_not_end_is_told_in_bounded_time(
    pauses: list[float], busy: bool, age_s: float
) -> None:
    """Whatever was learned: at twice the longest pause, or four minutes more, it is told."""
    pace, at = Pauses(LIMITS, 0.0, age_s), 0.0
    for pause in pauses:
        while pause > 0:
            at += 5.0
            pause -= 5.0
            pace.look(at, False, busy)
        pace.look(at, True, busy)
    longest = max(pauses, default=0.0) + 5.0
    latest = max(300.0, longest + 240.0, 2 * longest)
    waited = 0.0
    while not pace.unusual:
        at, waited = at + 1.0, waited + 1.0
        pace.look(at, False, busy)
        assert waited <= latest + 1.0


def test_a_pause_as_long_as_an_earlier_one_is_usual() -> None:
    pace = old_pace()
    for at in range(0, 110, 10):
        pace.look(at, False)
    pace.look(110, True)
    assert pace.limit_s == pytest.approx(340.0, abs=20)


def test_what_a_young_job_pauses_is_not_learned() -> None:
    pace = Pauses(LIMITS, 0.0)
    for at in range(0, 250, 5):
        pace.look(at, False, busy=True)
    pace.look(250, True)
    for at in range(255, 700, 5):
        pace.look(at, True)
    assert pace.limit_s == LIMITS.still_s


def test_a_watch_that_slept_has_seen_no_pause() -> None:
    pace = old_pace()
    pace.look(100_000.0, False)
    assert not pace.unusual


def test_a_pause_ended_by_a_closer_look_is_not_learned_and_a_forgiven_one_is() -> None:
    pace = old_pace()
    for at in range(0, 200, 5):
        pace.look(at, False, busy=True)
    pace.look(200, True, learn=False)
    assert pace.longest_s == 0
    for at in range(200, 400, 5):
        pace.look(at, False, busy=True)
    pace.forgive()
    assert pace.longest_s == pytest.approx(195, abs=6)
    assert pace.pause_s == 0


def fed(activity: RankActivity, signs: Signs, at: float, seconds: float, **rates: float) -> Signs:
    """A second at a time at these rates; the last signs."""
    for second in range(round(seconds)):
        signs = grown(signs, **rates)
        activity.look(signs, at + second + 1)
    return signs


def test_a_trackers_reports_are_no_movement_and_the_jobs_own_bytes_are() -> None:
    activity = RankActivity(NOTHING, 0.0)
    signs = fed(activity, NOTHING, 0.0, 600, io_bytes=20_000, peer_bytes=1_000_000)
    # What was sent while it still worked counts for as long as bytes are added up.
    signs = fed(activity, signs, 600.0, 15)
    report = grown(signs, io_bytes=4000, other_bytes=3000)
    assert not activity.look(report, 616.0).moved
    assert activity.look(grown(report, peer_bytes=900_000), 617.0).moved


def test_a_slow_download_moves_however_fast_the_job_usually_reads() -> None:
    activity = RankActivity(NOTHING, 0.0)
    signs = fed(activity, NOTHING, 0.0, 600, io_bytes=500_000_000)
    signs = fed(activity, signs, 600.0, 30, other_bytes=30_000)
    assert activity.look(grown(signs, other_bytes=30_000), 631.0).moved


def test_few_bytes_between_ranks_move_a_job_that_has_no_more() -> None:
    activity = RankActivity(NOTHING, 0.0)
    signs = fed(activity, NOTHING, 0.0, 300, peer_bytes=40)
    assert activity.look(grown(signs, peer_bytes=40), 301.0).moved


def test_processor_time_is_no_movement() -> None:
    activity = RankActivity(NOTHING, 0.0)
    look = activity.look(grown(NOTHING, wanted_s=1.0), 1.0)
    assert look.busy and not look.moved


class Played:
    """A job of four ranks at whose signs a watch looks every two seconds."""

    def __init__(self, *, elsewhere: bool = False) -> None:
        self.pace = JobPauses(LIMITS, 0.0, age_s=10_000.0, elsewhere=elsewhere)
        self.at = 0.0
        self.ranks = dict.fromkeys(range(4), NOTHING)
        self.go(60, {rank: {"peer_bytes": 100_000, "wanted_s": 1.0} for rank in range(4)})

    def go(self, seconds: float, doing: dict[int, dict[str, float]], stop: str = "") -> float:
        """Play so long, or until the stop is told; the seconds that it took."""
        begun = self.at
        while self.at - begun < seconds:
            self.at += 2.0
            for rank, more in doing.items():
                self.ranks[rank] = grown(self.ranks[rank], **more)
            self.pace.look(self.at, self.ranks)
            if stop and self.pace.stop == stop:
                break
        return self.at - begun


def test_a_job_that_stands_is_told_after_two_minutes() -> None:
    assert Played().go(1000, {}, "all") == pytest.approx(LIMITS.still_s, abs=4)


def test_a_job_whose_others_may_be_at_work_elsewhere_gets_eight() -> None:
    assert Played(elsewhere=True).go(1000, {}, "all") == pytest.approx(480, abs=4)


def test_a_rank_that_spins_gets_more_patience() -> None:
    job = Played()
    assert job.go(1000, {0: {"wanted_s": 2.0}}, "all") == pytest.approx(LIMITS.busy_s, abs=4)
    assert job.pace.doubtful == [0]


def test_a_rank_that_polls_for_ever_does_not_hide_that_its_peers_wait() -> None:
    job = Played()
    taken = job.go(1000, {0: {"io_bytes": 20_000, "wanted_s": 0.1}}, "most")
    assert taken == pytest.approx(4 * LIMITS.still_s, abs=4)
    assert job.pace.rested_s >= 4 * LIMITS.still_s - 4


def test_a_closer_look_that_shows_other_functions_is_movement() -> None:
    job = Played()
    for _ in range(20):
        job.go(200, {0: {"wanted_s": 2.0}})
        job.pace.look(job.at, job.ranks, frozenset({0}))
    assert job.pace.stop == "most"  # but its peers have waited for an hour


def test_a_suspended_job_has_not_stopped_and_one_stopped_rank_has() -> None:
    job = Played()
    job.ranks = {rank: signs._replace(state="T") for rank, signs in job.ranks.items()}
    job.go(5000, {}, "all")
    assert not job.pace.stop
    job.ranks = {r: s._replace(state="T" if r == 2 else "S") for r, s in job.ranks.items()}
    assert job.go(1000, {}, "all") < 1000


def test_a_rank_that_is_started_anew_is_movement() -> None:
    job = Played()
    job.go(100, {})
    job.ranks[9] = NOTHING
    job.go(2, {})
    assert job.pace.pace.pause_s < 4
