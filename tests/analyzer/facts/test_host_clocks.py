"""Offsets between hosts: found, followed, and never taken for lateness."""

from __future__ import annotations

import random

import numpy as np
import pytest
from arrival_builders import START, Simulated

from hanglab.analyzer.facts.arrival_lag import arrivals

WORLD = {"0": (0, 1, 2, 3)}
HOSTS = {0: "one", 1: "one", 2: "two", 3: "two"}


def job_with_slow_rank(rank, steps=80, ms=6.0):
    chance = random.Random(rank)
    job = Simulated.of(WORLD)
    for _ in range(steps):
        job.work(lambda r: 10 + chance.uniform(-1, 1) + (ms if r == rank else 0))
        job.meet("0")
    return job


CLOCKS = {
    "seconds ahead": lambda host, ms: ms + (7_300 if host == "two" else 0),
    "behind and drifting": lambda host, ms: ms * (1 - 2e-4) - 450 if host == "two" else ms,
    "jumps half way": lambda host, ms: ms + (2_000 if host == "two" and ms > 700 else 0),
}


@pytest.mark.parametrize("clock", CLOCKS.values(), ids=CLOCKS)
@pytest.mark.parametrize("slow", [0, 3])
def test_the_slow_rank_is_found_whatever_the_clocks_say(clock, slow):
    job = job_with_slow_rank(slow)
    right = arrivals(job.evidence())
    found = arrivals(job.evidence(hosts=HOSTS, clock=clock))
    for rank in range(4):
        # A jump may spoil the operation that it falls into.
        assert found.lateness[rank].excess_share == pytest.approx(
            right.lateness[rank].excess_share, abs=0.03
        )
    late = [rank for rank in range(4) if found.lateness[rank].excess_share > 0.1]
    assert late == [slow]


def test_offset_is_exact_where_all_leave_together():
    def clock(host, ms):
        return ms * (1 + 1e-4) + 5_000 if host == "two" else ms

    job = job_with_slow_rank(3)
    found = arrivals(job.evidence(hosts=HOSTS, clock=clock))
    moments = np.array([300.0, 900.0, 1300.0])
    shown = np.array([START + round(clock("two", ms) * 1e6) for ms in moments])
    error = found.local(2, shown.tolist()) - found.local(0, [START + int(m * 1e6) for m in moments])
    assert np.abs(error).max() < 0.05e6, "50 microseconds"


def test_hosts_that_nothing_ties_together_are_not_compared():
    """Nobody saw a rank leave anything: each host's ranks are compared among themselves."""
    job = job_with_slow_rank(3)
    found = arrivals(
        job.evidence(hosts=HOSTS, waits=False, clock=lambda h, ms: ms + 9_000 * (h == "two"))
    )
    late = [rank for rank in range(4) if found.lateness[rank].excess_share > 0.1]
    assert late == [3]
    assert {tuple(stretch.members) for stretch in found.group_lags} == {(0, 1), (2, 3)}


def test_a_rank_alone_on_an_untied_host_is_not_judged():
    job = job_with_slow_rank(3)
    hosts = {0: "one", 1: "one", 2: "one", 3: "three"}
    found = arrivals(
        job.evidence(hosts=hosts, waits=False, clock=lambda h, ms: ms + 9_000 * (h == "three"))
    )
    assert 3 not in found.lateness
    assert all(found.lateness[rank].excess_share < 0.05 for rank in found.lateness)
