"""Jobs that somebody looks at before the recorder's threshold has passed."""

from __future__ import annotations

import pytest
from views import job, view

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.evidence.model import Evidence
from hanglab.analyzer.verdict import Status


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
