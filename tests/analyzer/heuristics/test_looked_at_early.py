"""Jobs that somebody looks at before the recorder's threshold has passed."""

from __future__ import annotations

import pytest
from views import job, user, view, waiting

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.evidence.model import Evidence
from hanglab.analyzer.verdict import Cause, Status


def looked_at(quiet_s: float, longest_pause_s: float) -> Evidence:
    views = [view(rank, quiet_s=quiet_s) for rank in range(3)]
    for one in views:
        assert one.movement is not None
        one.movement.longest_pause_s = longest_pause_s
    known = job(views, trigger="request")
    assert known.job is not None
    known.job.hang_after_s = 30.0
    return known


@pytest.mark.parametrize(("quiet_s", "longest_pause_s"), [(4.9, 0.1), (12.0, 1.3), (0.0, 0.0)])
def test_a_pause_of_a_usual_size_is_healthy(quiet_s: float, longest_pause_s: float) -> None:
    assert conclude(looked_at(quiet_s, longest_pause_s)).status is Status.HEALTHY


def test_a_rest_out_of_all_proportion_is_not_called_healthy() -> None:
    verdict = conclude(looked_at(15.0, 0.2))
    assert verdict.status is Status.INCONCLUSIVE and verdict.culprits == []
    assert "Nothing of the job had moved for 15.0 s" in verdict.summary
    assert "longest pause before was 0.2 s" in verdict.summary


def test_one_rank_that_moves_is_enough() -> None:
    known = looked_at(15.0, 0.2)
    assert known.ranks[1].movement is not None
    known.ranks[1].movement.quiet_s = 0.1
    assert conclude(known).status is Status.HEALTHY


def looked_at_while_one_is_away(quiet_s: float) -> Evidence:
    """Rank 1 sleeps while its peers wait for it, and has not moved for as long as they."""
    views = [waiting(0), view(1, user(31), wchan="hrtimer_nanosleep"), waiting(2)]
    for one in views:
        assert one.movement is not None
        one.movement.quiet_s = quiet_s
        one.movement.longest_pause_s = 0.2
    known = job(views, outside=[1], trigger="interrupt")
    assert known.job is not None
    known.job.hang_after_s = 30.0
    return known


def test_a_rank_that_moved_just_now_is_at_work() -> None:
    verdict = conclude(looked_at_while_one_is_away(0.5))
    assert (verdict.status, verdict.cause) == (Status.SLOW, Cause.RANK0_WORK)
    assert verdict.culprits == [1]


def test_a_rank_at_rest_like_all_the_others_is_not_said_to_work() -> None:
    verdict = conclude(looked_at_while_one_is_away(12.0))
    assert (verdict.status, verdict.cause, verdict.culprits) == (Status.INCONCLUSIVE, None, [])
    assert "Nothing of the job had moved for 12.0 s" in verdict.summary
    assert verdict.inputs.would_decide == [
        "a capture of the job when nothing of it has moved for 30 s"
    ]
    stands = {one.rank: one.detail for one in verdict.evidence if one.source == "stack"}
    assert stands[1].startswith("stands at train.py:31")
