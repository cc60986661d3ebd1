from __future__ import annotations

import random

import pytest

from hanglab.recorder.slowness import (
    InputWait,
    RunQueue,
    Statistic,
    Summary,
    individual_scores,
    judge_input,
    kernel_score,
    relative_scores,
    slow_ranks,
    slower_than,
    summarize,
)
from hanglab.recorder.slowness.kernel_scores import common_medians

SLOW = 1.15


def window(timings: list[float]) -> Summary:
    summary = summarize(timings)
    assert summary is not None
    return summary


def noisy(mean: float, deviation: float, seed: int, count: int = 50) -> Summary:
    generator = random.Random(seed)
    return window([max(0.0, generator.gauss(mean, deviation)) for _ in range(count)])


def test_ranks_that_take_two_three_and_four_times_as_long() -> None:
    assert relative_scores({0: 10.0, 1: 20.0, 2: 30.0, 3: 40.0}) == pytest.approx(
        {0: 1.0, 1: 1 / 2, 2: 1 / 3, 3: 1 / 4}
    )


def test_unknown_is_none() -> None:
    assert relative_scores({0: 10.0, 1: None, 2: 20.0}) == {0: 1.0, 1: None, 2: 0.5}
    assert relative_scores({0: 10.0, 1: None}) == {0: None, 1: None}
    assert relative_scores({0: 10.0}, alone=True) == {0: 1.0}
    assert relative_scores({}) == {}


def test_times_below_the_clocks_resolution_are_equal() -> None:
    assert relative_scores({0: 0.0, 1: 0.0003, 2: 0.009}) == {0: 1.0, 1: 1.0, 2: 1.0}


def test_individual_scores_compare_with_the_best_so_far() -> None:
    assert individual_scores({"a": 20.0, "b": 5.0, "c": None}, {"a": 10.0, "b": 8.0}) == {
        "a": 0.5,
        "b": 1.0,
        "c": None,
    }


KERNELS = {"first": [1.0, 1.0, 2.0], "second": [2.0, 2.0, 3.0]}


def kernels(factor: float, *names: str) -> dict[str, Summary]:
    return {name: window([factor * t for t in KERNELS[name]]) for name in names or KERNELS}


def test_gpu_scores_of_ranks_scaled_by_rank_plus_one() -> None:
    by_rank = {rank: kernels(rank + 1) for rank in range(4)}
    reference = common_medians(by_rank)
    scores = [kernel_score(by_rank[rank], reference) for rank in range(4)]
    assert scores == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])


def test_kernels_that_a_rank_lacks_are_left_out() -> None:
    by_rank = {0: kernels(1), 1: kernels(2, "first"), 2: kernels(4, "first")}
    assert set(common_medians(by_rank)) == {"first"}
    scores = [kernel_score(by_rank[rank], common_medians(by_rank)) for rank in range(3)]
    assert scores == pytest.approx([1, 1 / 2, 1 / 4])


def test_no_common_kernel_is_unknown() -> None:
    by_rank = {0: kernels(1, "first"), 1: kernels(1, "second")}
    assert common_medians(by_rank) == {}
    assert kernel_score(by_rank[0], common_medians(by_rank)) is None
    assert kernel_score({}, {}) is None


def test_a_kernels_weight_is_the_time_spent_in_it() -> None:
    # 30 ms at half speed, 10 ms at full speed.
    own = {"slow": window([2.0] * 15), "quick": window([1.0] * 10)}
    assert kernel_score(own, {"slow": 1.0, "quick": 1.0}) == pytest.approx((30 * 0.5 + 10) / 40)


def test_summary() -> None:
    summary = window([float(n) for n in range(1, 102)])
    told = summary.statistics()
    assert told[Statistic.MED] == 51 and told[Statistic.AVG] == 51 and told[Statistic.NUM] == 101
    assert told[Statistic.MIN] == 1 and told[Statistic.MAX] == 101 and told[Statistic.TAIL] == 96
    assert told[Statistic.STD] == pytest.approx(29.3, abs=0.01)
    assert window([3.0]).deviation is None


def test_what_is_no_time_is_left_out() -> None:
    assert window([1.0, -5.0, float("nan"), float("inf"), 3.0]).count == 2
    assert summarize([-1.0]) is None
    assert summarize([]) is None


@pytest.mark.parametrize("seed", range(20))
def test_half_as_much_again_is_told_from_noise_of_a_third(seed: int) -> None:
    # 10 +- 3 ms against 15 +- 3 ms, as NVIDIA's own tests have it.
    usual, slow = noisy(10, 3, seed), noisy(15, 3, seed + 1000)
    assert slower_than(slow, usual, 1 / 0.75)
    assert not slower_than(usual, slow, 1 / 0.75)
    assert not slower_than(noisy(10, 3, seed + 2000), usual, 1 / 0.75)


def test_a_difference_below_the_floor_accuses_nobody() -> None:
    assert (
        slow_ranks({0: noisy(0.1, 0.01, 1), 1: noisy(0.9, 0.01, 2), 2: noisy(0.1, 0.01, 3)}, SLOW)
        == {}
    )
    assert set(slow_ranks({0: noisy(0.1, 0.01, 1), 1: noisy(1.9, 0.01, 2)}, SLOW)) == {1}


def test_several_culprits_by_their_medians() -> None:
    by_rank = {rank: noisy(20 if rank in (1, 4) else 10, 1, rank) for rank in range(6)}
    found = slow_ranks(by_rank, SLOW)
    assert set(found) == {1, 4} and found[1].kind == "median"
    assert found[1].factor == pytest.approx(2, rel=0.1)


def test_one_rank_with_less_work_makes_no_culprits_of_the_others() -> None:
    assert slow_ranks({0: noisy(1, 0.1, 0), 1: noisy(10, 1, 1), 2: noisy(10, 1, 2)}, SLOW) == {}


def test_slow_in_two_of_five_entries_shows_in_the_mean() -> None:
    generator = random.Random(5)
    often = window([generator.gauss(20 if n % 5 < 2 else 10, 1) for n in range(50)])
    assert not slower_than(often, noisy(10, 1, 0), SLOW)
    found = slow_ranks({0: noisy(10, 1, 0), 1: noisy(10, 1, 1), 2: often}, SLOW)
    assert {rank: slowness.kind for rank, slowness in found.items()} == {2: "mean"}


def test_every_tenth_entry_stalls() -> None:
    generator = random.Random(5)
    stalls = window([210.0 if n % 10 == 5 else generator.gauss(10, 1) for n in range(50)])
    found = slow_ranks({0: noisy(10, 1, 0), 1: noisy(10, 1, 1), 2: stalls}, SLOW)
    assert {rank: slowness.kind for rank, slowness in found.items()} == {2: "stalls"}
    assert found[2].excess_ms == pytest.approx(16, rel=0.2)


def test_one_long_pause_is_not_persistent() -> None:
    paused = window([3000.0] + [10.0 + n % 3 for n in range(49)])
    assert slow_ranks({0: noisy(10, 1, 0), 1: noisy(10, 1, 1), 2: paused}, SLOW) == {}


def test_stalls_that_all_ranks_have_accuse_nobody() -> None:
    def stalling(seed: int) -> Summary:
        generator = random.Random(seed)
        return window(
            [200.0 if generator.random() < 0.1 else generator.gauss(10, 1) for _ in range(50)]
        )

    for seed in range(0, 400, 4):
        assert slow_ranks({rank: stalling(seed + rank) for rank in range(4)}, SLOW) == {}


def drifting(seed: int, factors: list[float], count: int = 50) -> dict[int, Summary]:
    """Windows of ranks that step together, on a machine whose speed halves now and then."""
    generator = random.Random(seed)
    speed = 1.0
    timings: list[list[float]] = [[] for _ in factors]
    for _ in range(count):
        speed = min(2.0, max(1.0, speed + generator.gauss(0, 0.15)))
        for of_rank, factor in zip(timings, factors, strict=True):
            of_rank.append(factor * speed * generator.gauss(10, 0.5))
    return {rank: window(of_rank) for rank, of_rank in enumerate(timings)}


def test_a_rank_is_told_from_a_machine_whose_speed_drifts() -> None:
    for seed in range(100):
        assert set(slow_ranks(drifting(seed, [1, 1, 1.3, 1]), SLOW)) == {2}, seed
        assert slow_ranks(drifting(seed, [1, 1, 1, 1]), SLOW) == {}, seed


def test_the_drift_that_ranks_share_cancels_against_the_fastest_one() -> None:
    for seed in range(100):
        ranks = drifting(seed, [1.4, 1])
        assert slower_than(ranks[0], ranks[1], 1 / 0.75, at_once=True), seed
        assert not slower_than(ranks[1], ranks[0], 1 / 0.75, at_once=True), seed


def test_how_much_slower_than_its_peers_meanwhile() -> None:
    found = slow_ranks(drifting(3, [1, 1, 1.5, 1]), SLOW)[2]
    assert found.factor == pytest.approx(1.5, rel=0.05)


@pytest.mark.parametrize("count", [20, 50])
def test_what_comes_and_goes_within_the_window_is_not_persistent(count: int) -> None:
    # A rank that shared its processor for three fifths of the window.
    crowded = window([9.0 + n % 3 if 5 * n < 2 * count else 25.0 + n % 3 for n in range(count)])
    usual = {rank: noisy(10, 1, rank, count) for rank in range(3)}
    assert slow_ranks({**usual, 3: crowded}, SLOW) == {}
    assert not slower_than(crowded, usual[0], 1 / 0.75, at_once=True)
    assert not slower_than(crowded, usual[0], 1 / 0.75)


def test_half_a_minute_in_each_is_persistent() -> None:
    throttled = window([10.0 + n % 3 if n < 2000 else 25.0 + n % 3 for n in range(4000)])
    usual = {rank: noisy(11, 1, rank, 4000) for rank in range(3)}
    assert set(slow_ranks({**usual, 3: throttled}, SLOW)) == {3}


def test_stalls_in_one_cluster_count_once() -> None:
    clustered = window([60.0 if n in (2, 4, 6, 8) else 10.0 + n % 3 / 10 for n in range(20)])
    assert slow_ranks({0: noisy(10, 1, 0, 20), 1: noisy(10, 1, 1, 20), 2: clustered}, SLOW) == {}
    apart = window([60.0 if n % 5 == 2 else 10.0 + n % 3 / 10 for n in range(20)])
    found = slow_ranks({0: noisy(10, 1, 0, 20), 1: noisy(10, 1, 1, 20), 2: apart}, SLOW)
    assert [slowness.kind for slowness in found.values()] == ["stalls"]


def queues(delays_ms: dict[int, float]) -> dict[int, RunQueue]:
    return {rank: RunQueue(ms) for rank, ms in delays_ms.items()}


def test_a_rank_that_was_kept_from_its_processor_is_not_slow() -> None:
    ranks = {0: noisy(10, 1, 0), 1: noisy(10, 1, 1), 2: noisy(15, 1, 2)}
    assert set(slow_ranks(ranks, SLOW)) == {2}
    assert slow_ranks(ranks, SLOW, run_queues=queues({0: 100.0, 1: 90.0, 2: 340.0})) == {}
    # It waited no longer than its peers, or by far less than it is slower.
    assert set(slow_ranks(ranks, SLOW, run_queues=queues({0: 300.0, 1: 340.0, 2: 10.0}))) == {2}
    assert set(slow_ranks(ranks, SLOW, run_queues=queues({0: 0.0, 1: 0.0, 2: 50.0}))) == {2}
    assert set(slow_ranks(ranks, SLOW, run_queues=queues({2: 340.0}))) == {2}


def test_windows_of_different_lengths_are_not_paired() -> None:
    long = {rank: drifting(rank, [1.0], 80)[0] for rank in range(3)}
    assert set(slow_ranks({**long, 3: noisy(30, 0.5, 3)}, SLOW)) == {3}


def test_few_entries_say_nothing() -> None:
    assert slow_ranks({0: window([10.0] * 4), 1: window([90.0] * 4)}, SLOW) == {}
    assert set(slow_ranks({0: window([10.0] * 5), 1: window([90.0] * 5)}, SLOW)) == {1}


@pytest.mark.parametrize(
    ("waits", "everybody", "slow"),
    [
        # All loaders saturated: whoever waits just now is no more to blame than the others.
        ([(0.0, 1.0), (0.6, 0.99), (0.3, 1.0), (0.1, 0.98)], True, ()),
        ([(0.5, 1.0)] * 4, True, ()),
        # One loader saturated, the others idle.
        ([(0.02, 0.1), (0.7, 1.0), (0.03, 0.1), (0.0, 0.1)], False, (1,)),
        # Loading in the rank itself: all alike, and one that takes much longer.
        ([(0.3, None)] * 4, True, ()),
        ([(0.2, None), (0.5, None), (0.2, None), (0.2, None)], False, (1,)),
        ([(0.01, None), (0.5, None), (0.02, None), (0.02, None)], False, (1,)),
    ],
)
def test_starvation(
    waits: list[tuple[float, float | None]], everybody: bool, slow: tuple[int, ...]
) -> None:
    found = judge_input({rank: InputWait(*wait) for rank, wait in enumerate(waits)})
    assert found is not None
    assert (found.everybody, found.slow) == (everybody, slow)
    assert 0 < found.share <= 1


@pytest.mark.parametrize("waits", [[(0.08, 0.06)] * 4, [(0.05, None)] * 4, [(0.0, 1.0)] * 4, []])
def test_a_job_that_input_costs_little(waits: list[tuple[float, float | None]]) -> None:
    assert judge_input({rank: InputWait(*wait) for rank, wait in enumerate(waits)}) is None
