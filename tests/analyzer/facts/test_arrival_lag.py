"""Lateness by a rank's own doing: lag, inherited lateness, buckets, stages, hosts."""

from __future__ import annotations

import random

import pytest
from arrival_builders import Simulated

from hanglab.analyzer.facts.arrival_lag import OwnTime, arrivals

WORLD = {"0": (0, 1, 2, 3)}
STEPS = 40


def late(found, least=0.05):
    """Ranks that exceed their peers by a share of the time."""
    return [rank for rank in sorted(found.lateness) if found.lateness[rank].excess_share >= least]


def noise(seed=0, ms=1.0):
    chance = random.Random(seed)
    return lambda rank: 10 + chance.uniform(-ms, ms)


def test_the_slow_rank_and_what_it_costs():
    job, usual = Simulated.of(WORLD), noise()
    for _ in range(STEPS):
        job.work(lambda rank: usual(rank) + (8 if rank == 2 else 0))
        job.meet("0")
    found = arrivals(job.evidence())
    assert late(found) == [2]
    assert found.lateness[2].last == found.lateness[2].compared == STEPS - 1
    assert found.lateness[2].excess_ns / (STEPS - 2) == pytest.approx(8e6, abs=0.5e6)
    assert found.share(2) == pytest.approx(8 / 18.2, abs=0.05)
    assert found.lateness[2].certainty > 20
    assert all(found.lateness[rank].certainty < 4 for rank in (0, 1, 3))


def test_ranks_that_only_jitter_are_not_late():
    job, usual = Simulated.of(WORLD), noise(ms=6.0)
    for _ in range(200):
        job.work(usual)
        job.meet("0")
    found = arrivals(job.evidence())
    assert late(found) == []
    assert all(found.lateness[rank].certainty < 4 for rank in range(4))
    # Somebody is last each time all the same, and everybody loses by it.
    assert sum(late.last for late in found.lateness.values()) > 150


def test_lateness_inherited_from_another_group_is_not_the_ranks_own():
    """Rank 3 keeps rank 2 waiting in their group, so rank 2 is late where it meets rank 0."""
    groups = {"tp0": (0, 1), "tp1": (2, 3), "dp0": (0, 2), "dp1": (1, 3)}
    job, usual = Simulated.of(groups), noise()
    for _ in range(STEPS):
        job.work(lambda rank: usual(rank) + (10 if rank == 3 else 0))
        for group in ("tp0", "tp1"):
            job.meet(group)
        job.work(lambda rank: 2.0)
        for group in ("dp0", "dp1"):
            job.meet(group)
    found = arrivals(job.evidence())
    assert late(found) == [3]


def test_buckets_of_one_backward_pass_cost_once():
    """Five buckets without a wait between: the lag grows, but peers wait once, at the end."""
    job = Simulated.of(WORLD)
    for _ in range(STEPS):
        job.work(lambda rank: 10)
        entered = []
        for _ in range(5):
            job.work(lambda rank: 4 if rank == 1 else 2)
            entered.append(job.enter("0"))
        job.wait(*entered)
    found = arrivals(job.evidence())
    assert late(found) == [1]
    assert found.lateness[1].compared == STEPS - 1
    assert found.lateness[1].excess_ns / (STEPS - 2) == pytest.approx(10e6, rel=0.02)


def test_backward_passes_before_one_step_of_the_optimizer_are_waited_for_one_by_one():
    """Two microbatches: rank 2 is late for the first reduction, and nobody for the other."""
    job, usual = Simulated.of(WORLD), noise()
    for _ in range(STEPS):
        job.work(lambda rank: usual(rank) + (30 if rank == 2 else 0))
        job.meet("0")
        job.work(lambda rank: 4)
        job.meet("0")
        job.update()
    found = arrivals(job.evidence(waits=False))
    assert late(found) == [2]
    assert found.lateness[2].excess_ns / (STEPS - 2) == pytest.approx(30e6, rel=0.03)


@pytest.mark.parametrize("buckets", [2, 5])
def test_buckets_of_one_backward_pass_are_one_wait_by_the_optimizers_steps(buckets):
    job = Simulated.of(WORLD)
    for _ in range(STEPS):
        job.work(lambda rank: 10)
        entered = []
        for _ in range(buckets):
            job.work(lambda rank: 6 if rank == 1 else 2)
            entered.append(job.enter("0"))
        job.wait(*entered)
        job.update()
    found = arrivals(job.evidence(waits=False))
    assert late(found) == [1]
    assert found.lateness[1].compared == STEPS - 1
    assert found.lateness[1].excess_ns / (STEPS - 2) == pytest.approx(buckets * 4e6, rel=0.02)


def test_stages_of_a_pipeline_are_not_compared_with_each_other():
    """The second stage works longer and the first always ends later: neither is a straggler."""
    job = Simulated.of(WORLD | {"dp0": (0, 1), "dp1": (2, 3)})

    def step(slow=None):
        for _ in range(2):
            job.work(lambda rank: 3 if rank < 2 else 0)
            job.send(0, 2)
            job.send(1, 3)
            job.work(lambda rank: 0 if rank < 2 else 9 + (12 if rank == slow else 0))
            job.send(2, 0)
            job.send(3, 1)
            job.work(lambda rank: 3 if rank < 2 else 0)
        for group in ("dp0", "dp1", "0"):
            job.meet(group)

    for _ in range(STEPS):
        step()
    assert late(arrivals(job.evidence())) == []

    job = Simulated.of(WORLD | {"dp0": (0, 1), "dp1": (2, 3)})
    for _ in range(STEPS):
        step(slow=2)
    # Rank 0 waits for rank 2 inside a receive, and is as late as it: not its own time.
    assert late(arrivals(job.evidence())) == [2]


def test_two_slow_ranks_at_once():
    job, usual = Simulated.of(WORLD), noise()
    for _ in range(STEPS):
        job.work(lambda rank: usual(rank) + {1: 9, 2: 6}.get(rank, 0))
        job.meet("0")
    found = arrivals(job.evidence())
    assert late(found) == [1, 2]
    # The one that is never last would cost its peers its own excess if it were alone.
    assert found.lateness[2].last <= 3
    assert found.lateness[2].late_share == pytest.approx(6 / 19, abs=0.05)


def test_one_long_wait_is_not_persistent():
    job, usual = Simulated.of(WORLD), noise()
    for step in range(STEPS):
        job.work(lambda rank, step=step: usual(rank) + (3000 if (rank, step) == (0, 20) else 0))
        job.meet("0")
    found = arrivals(job.evidence())
    assert late(found) == []
    assert found.lateness[0].longest_ns == pytest.approx(3000e6, rel=0.01)
    assert found.share(0) < 0.05


@pytest.mark.parametrize("calls", [1, 3])
def test_a_rank_that_stalls_in_every_tenth_step_makes_no_longer_steps(calls):
    """Of calls behind each other that no rank works before the first alone begins a stretch."""
    job, usual = Simulated.of(WORLD), noise()
    for step in range(STEPS):
        job.work(lambda rank, step=step: usual(rank) + (600 if rank == 2 and step % 10 == 5 else 0))
        for _ in range(calls):
            job.meet("0")
    assert arrivals(job.evidence()).stretches == pytest.approx(STEPS - 1, abs=1)


def test_own_time_of_overlapping_intervals():
    import numpy as np

    own = OwnTime(np.array([[0.0, 10.0], [20.0, 30.0], [5.0, 12.0]]))
    assert own.before(np.array([np.inf])).tolist() == [22.0]
    begins, ends = np.array([0.0, 8.0, 12.0, -5.0]), np.array([12.0, 25.0, 20.0, 50.0])
    assert own.overlap(begins, ends).tolist() == [12.0, 9.0, 0.0, 22.0]
    assert OwnTime(np.zeros((0, 2))).overlap(begins, ends).tolist() == [0.0] * 4
