"""Windows of whole jobs: late ranks, what filled their time, and loaders that do not keep up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hanglab.recorder.slowness.batch_waits import (
    BatchWait,
    cost_of_slow_input,
    starved_ranks,
    starved_share,
)
from hanglab.recorder.slowness.job_window import JobWindow, Lateness, TimeBreakdown
from hanglab.recorder.slowness.section_costs import (
    SectionCost,
    TypicalCost,
    heaviest_section,
    longer,
)

SECOND = 1_000_000_000
#: Rank 2 works 8 ms longer in each of 100 operations, and its peers wait for it.
LATE = Lateness(
    2 * SECOND, 100, 99, int(0.8e9), int(8e6), int(0.8e9), 0.8e9, 50.0, excess_parts=[0.08e9] * 10
)


def job(
    late: Lateness = LATE,
    cpu: float = 1.6,
    waited: float = 0.0,
    usual: float = 0.8,
    **times: Any,
) -> JobWindow:
    """Four ranks with ``usual`` s of processor time each, rank 2 with ``cpu``."""

    def breakdown(seconds: float, waits: float) -> TimeBreakdown:
        ns = seconds * SECOND
        parts = [waits * SECOND / 10] * 10
        return TimeBreakdown(
            cpu_ns=ns, cpu_parts=[ns / 10] * 10, waited_ns=sum(parts), waited_parts=parts
        )

    of_rank = {rank: breakdown(usual, 0.0) for rank in range(4)}
    of_rank[2] = replace(breakdown(cpu, waited), **times)
    on_time = Lateness(2 * SECOND, 100)
    return JobWindow(2 * SECOND, 100, 50, dict.fromkeys(range(4), on_time) | {2: late}, of_rank)


def accused(window: JobWindow) -> list[int]:
    return [rank for rank in window.times if window.computes_more(rank)]


def test_a_rank_that_is_late_and_computes_more() -> None:
    assert accused(job()) == [2]
    assert LATE.share == pytest.approx(0.792 / 1.992)


@pytest.mark.parametrize(
    "late",
    [
        replace(LATE, excess_ns=0.15e9),  # 0.075 of the time
        replace(LATE, late_ns=int(0.08e9)),  # its peers lose half of what they must
        replace(LATE, certainty=0.4),
        replace(LATE, compared=11),
        replace(LATE, longest_ns=int(0.8e9)),  # once
    ],
)
def test_who_is_not_late_enough_is_not_accused(late: Lateness) -> None:
    assert accused(job(late)) == []


@pytest.mark.parametrize(("cpu", "found"), [(1.15, []), (1.17, []), (1.21, [2]), (1.6, [2])])
def test_processor_time_beyond_what_cold_caches_explain(cpu: float, found: list[int]) -> None:
    """0.08 of the time and 1.2 times the peers' where no section tells."""
    assert accused(job(cpu=cpu, usual=1.0)) == found


def test_work_that_shows_all_through_needs_little_proof_of_lateness() -> None:
    """Seen: every tenth step takes ten times as long, so that the mean lateness is noisy."""
    noisy = replace(LATE, certainty=1.3)
    assert accused(job(noisy)) == [2]
    parts = [0.3e9] * 4 + [0.06e9] * 6
    assert accused(job(noisy, cpu_parts=parts)) == []
    assert accused(job(LATE, cpu_parts=parts)) == [2]


def test_a_rank_that_its_machine_delays_is_not_accused() -> None:
    assert accused(job(cpu=1.1)) == [2]
    assert accused(job(cpu=1.1, waited=0.2)) == []


@pytest.mark.parametrize(
    ("crowded", "quick_ms", "tenths", "found"),
    [
        (0.0, 15, 10, []),  # with processors for all its peers would lose by it
        (0.04, 15, 10, []),
        (0.06, 15, 10, [2]),
        (0.5, 15, 10, [2]),
        (0.5, 10, 10, []),  # its quickest entries are as quick as its peers'
        (0.5, 15, 3, [2]),
        (0.5, 15, 2, []),
    ],
)
def test_where_processors_lack_who_is_late_is_chance_and_sections_tell_who_computes_more(
    crowded: float, quick_ms: float, tenths: int, found: list[int]
) -> None:
    parts = [0.16e9] * tenths + [0.08e9] * (10 - tenths)
    window = job(replace(LATE, certainty=0.0, excess_ns=0.0), cpu_parts=parts)
    times = {r: replace(t, waited_ns=crowded * 2 * SECOND) for r, t in window.times.items()}
    costs = {rank: cost(10, 10) for rank in range(4)} | {2: cost(15, quick_ms)}
    window = replace(window, times=times, sections={("step", ""): costs}, alike=True)
    assert accused(window) == found
    # A stage of a pipeline has other work than the next.
    assert accused(replace(window, alike=False)) == []


@pytest.mark.parametrize(("times_as_much", "found"), [(1.0, [2]), (1.5, [2]), (3.0, [])])
def test_who_works_more_waits_more_for_a_processor_which_is_no_excuse(
    times_as_much: float, found: list[int]
) -> None:
    """Seen: 7.1 s of waiting for 1.1 s of work, the peers 3.8 for 0.7, of a window of 8.4 s."""
    window = job(replace(LATE, certainty=0.0), cpu=0.35, usual=0.24)
    for_each_second = 3.0
    times = {
        rank: replace(
            one,
            waited_ns=(one.cpu_ns or 0.0) * for_each_second * (times_as_much if rank == 2 else 1.0),
        )
        for rank, one in window.times.items()
    }
    costs = {rank: cost(10, 10) for rank in range(4)} | {2: cost(15, 15)}
    window = replace(
        window, times=times, sections={("forward", ""): costs, ("backward", ""): {
            rank: cost(10, 10) for rank in range(4)
        }}, alike=True,
    )  # fmt: skip
    assert accused(window) == found


def test_what_no_section_shows_is_no_work_where_sections_are_marked() -> None:
    """Seen: identical ranks of which one took 1.2 times as long, and was late, by chance."""
    window = job(cpu=1.21, usual=1.0)
    alike = {rank: cost(10, 10) for rank in range(4)}
    assert accused(window) == [2]
    assert accused(replace(window, sections={("step", ""): alike})) == []


def test_a_burst_of_work_is_not_persistent() -> None:
    burst = [0.8e9 / 10] * 8 + [0.4e9] * 2
    assert accused(job(cpu_parts=burst)) == []


def test_collections_and_loading_are_no_work() -> None:
    assert accused(job(collecting_ns=0.4e9, input_cpu_ns=0.4e9)) == []


@pytest.mark.parametrize(
    ("late", "times", "blocked"),
    [
        (LATE, {}, True),
        (LATE, {"cpu": 1.2}, True),  # half of what it takes longer
        (LATE, {"cpu": 1.3}, False),
        (LATE, {"waited": 0.62}, True),  # 0.09 of the time is left
        (LATE, {"waited": 0.68}, False),
        (LATE, {"input_ns": 0.5e9, "collecting_ns": 0.2e9}, False),
        (replace(LATE, certainty=3.9), {}, False),
        (replace(LATE, certainty=10.0), {"waited": 0.55}, False),  # 3.1 standard errors
        (replace(LATE, excess_ns=0.15e9), {}, False),
        (LATE, {"waited": None}, False),
    ],
)
def test_a_rank_that_is_blocked_on_its_own(
    late: Lateness, times: dict[str, Any], blocked: bool
) -> None:
    window = job(late, **{"cpu": 0.8, **times, "waited": times.get("waited") or 0.0})
    if times.get("waited", 0.0) is None:
        window.times[2].waited_ns = None
    assert [r for r in window.times if window.is_blocked(r)] == [2] * blocked


@pytest.mark.parametrize(
    ("stalls", "certainty", "tenths", "share", "blocked"),
    [
        (5, 2.2, 6, 0.5, True),  # the root of five
        (9, 3.0, 10, 0.3, True),
        (5, 2.2, 5, 0.5, False),  # a machine may disturb a rank for half of the time
        (5, 1.5, 6, 0.5, False),  # as many alike would be more certain: short ones are late, too
        (3, 2.1, 6, 0.5, False),  # too few
        (5, 2.2, 6, 0.15, False),  # too little
        (40, 2.2, 6, 0.5, False),  # many short ones
    ],
)
def test_few_long_stalls_are_told_by_how_often_they_come(
    stalls: int, certainty: float, tenths: int, share: float, blocked: bool
) -> None:
    excess = share * LATE.span_ns
    late = replace(
        LATE,
        certainty=certainty,
        excess_ns=excess,
        late_ns=int(excess),
        lost_ns=int(excess),
        longest_ns=int(excess / stalls),
        excess_parts=[excess / tenths] * tenths + [0.0] * (10 - tenths),
    )
    assert job(late, cpu=0.8).is_blocked(2) is blocked
    # Not where it computes for as long.
    assert not job(late, cpu=0.8 + share * 2).is_blocked(2)


@pytest.mark.parametrize(
    ("behind", "waits", "blocked"),
    [
        (0.16, [0.05] * 4, [2]),
        (0.16, [0.17] * 4, []),
        (0.14, [0.04, 0.05, 0.04, 0.04], [2]),
        (0.14, [0.04, 0.44, 0.04, 0.04], []),  # one that lacks a processor shows that others may
    ],
)
def test_on_a_crowded_machine_threads_of_its_own_may_lack_a_processor(
    behind: float, waits: list[float], blocked: list[int]
) -> None:
    """Shares of the time that a sound rank was behind, and main threads waited for; two seen."""
    window = job(replace(LATE, excess_ns=behind * LATE.span_ns), cpu=0.8, waited=0.0)
    for times, share in zip(window.times.values(), waits, strict=True):
        times.waited_ns = share * LATE.span_ns
    assert [r for r in window.times if window.is_blocked(r)] == blocked


def test_what_disturbs_a_rank_for_half_the_time_is_no_blocking_of_its_own() -> None:
    late = replace(LATE, excess_parts=[0.2e9] * 4 + [0.0] * 6)
    assert not job(late, cpu=0.8).is_blocked(2)
    assert job(cpu=0.8).is_blocked(2)
    # Nor what it waited for a processor in most tenths.
    times = job(cpu=0.8, waited=0.3)
    times.times[2].waited_parts = [0.07e9] * 4 + [0.003e9] * 6
    assert not times.is_blocked(2)


def test_steps_of_a_few_milliseconds_count_by_their_share() -> None:
    """0.9 ms of 5 ms are as much of the time as 9 of 50; what clocks blur is not."""
    short = replace(LATE, span_ns=SECOND, excess_ns=0.09e9, late_ns=int(0.09e9), longest_ns=0)
    for steps, late in ((100, True), (200, False)):
        window = JobWindow(SECOND, 200, steps, {2: short}, {})
        assert window.is_late(2) is late


def test_a_rank_without_a_processor() -> None:
    window = job(cpu=0.85, waited=0.6)
    assert [rank for rank in window.times if window.lacks_a_processor(rank)] == [2]
    # A fifth of the excess in lateness is not the main part of it, nor half its work as much.
    assert not job(cpu=0.85, waited=0.32).lacks_a_processor(2)
    assert not job(cpu=1.2, waited=0.6).lacks_a_processor(2)
    assert not job(cpu=0.85, waited=0.6, cpu_ns=None).lacks_a_processor(2)
    less_late = replace(LATE, excess_ns=0.5e9)
    assert job(less_late, cpu=0.85, waited=0.32).lacks_a_processor(2)
    assert not job(less_late, cpu=0.85, waited=0.28).lacks_a_processor(2)


def test_larger_batches_explain_as_much_more_work() -> None:
    def explained(elements: float, cpu: float = 1.6) -> bool:
        window = job(cpu=cpu)
        for rank, times in window.times.items():
            times.elements = elements if rank == 2 else 1000.0
        return window.computes_for_larger_batches(2)

    assert [explained(size) for size in (1200.0, 1300.0, 2000.0)] == [False, True, True]
    assert [explained(size, cpu=1.0) for size in (1100.0, 1200.0)] == [False, True]


def cost(ms: float, quick_ms: float, entries: int = 50) -> SectionCost:
    return SectionCost(entries, round(ms * entries * 1e6), TypicalCost(ms * 1e6, quick_ms * 1e6))


@pytest.mark.parametrize(
    ("own", "found"),
    [
        (cost(12.1, 12.1), True),
        (cost(12.1, 10.5), False),  # the quickest entries are as quick
        (cost(11.9, 11.9), False),
        (cost(30.0, 30.0, 19), False),
    ],
)
def test_a_section_that_takes_longer(own: SectionCost, found: bool) -> None:
    costs = {("step", ""): {0: cost(10, 10), 1: cost(10, 10), 2: own}}
    assert longer(costs, 2) is found
    short = {("step", ""): {0: cost(1, 1), 1: cost(1, 1), 2: cost(1.9, 1.9)}}
    assert not longer(short, 2)


def test_the_section_that_holds_most_of_the_excess() -> None:
    costs = {
        ("a", ""): {0: cost(10, 10), 2: cost(15, 15)},
        ("b", ""): {0: cost(10, 10), 2: cost(11, 11)},
        ("c", ""): {2: cost(90, 90)},
    }
    assert heaviest_section(costs, 2, 200e6) == "a"
    assert heaviest_section(costs, 2, 300e6) is None


def batches(*waits: tuple[float, float | None, float]) -> dict[int, BatchWait]:
    return {
        rank: BatchWait(share, busy, count=50, wait_ms=ms)
        for rank, (share, busy, ms) in enumerate(waits)
    }


@pytest.mark.parametrize(
    ("waits", "waiting"),
    [
        # As recorded of ``input_starved``: ranks wait in turns behind saturated loaders.
        ([(0.13, 0.98, 12.1), (0.02, 0.9, 1.6), (0.61, 0.95, 53.5), (0.05, 0.97, 4.5)], [2, 0, 3]),
        # Its control, and that of ``slow_input_and_compute``, which loads in its own process.
        ([(0.11, 0.06, 3.5), (0.07, 0.08, 2.3), (0.08, 0.08, 2.6), (0.06, 0.09, 1.9)], []),
        ([(0.24, None, 7.3), (0.24, None, 7.0), (0.26, None, 7.8), (0.24, None, 7.0)], []),
        ([(0.45, None, 20.0)] * 4, [0, 1, 2, 3]),
        ([(0.16, 0.9, 9.0), (0.0, 0.9, 0.1)], [0]),
        ([(0.16, 0.9, 9.0), (0.0, 0.7, 0.1)], []),
        ([(0.6, 0.9, 9.0), (0.0, 0.5, 0.1)], []),
        ([(0.6, 1.0, 1.9)] * 4, []),
    ],
)
def test_starved_jobs(waits: list[tuple[float, float | None, float]], waiting: list[int]) -> None:
    assert starved_ranks(batches(*waits), len(waits)) == waiting


def test_a_rank_that_is_not_known_may_not_starve() -> None:
    assert starved_ranks(batches(*[(0.45, None, 20.0)] * 3), 4) == []


def test_the_share_of_a_starved_job() -> None:
    assert starved_share(batches((0.5, None, 9.0), (0.7, None, 9.0)), [1, 0]) == pytest.approx(0.6)
    assert starved_share(batches((0.1, 1.0, 9.0), (0.3, 1.0, 9.0)), [1, 0]) == pytest.approx(0.4)
    assert starved_share(batches((0.6, 1.0, 9.0), (0.7, 1.0, 9.0), (0.2, 1.0, 9.0)), [1, 0]) == 1.0


@pytest.mark.parametrize(
    ("own", "peers", "slow"),
    [
        ((0.82, 0.99, 67.0), (0.03, 0.17, 3.0), True),
        ((0.82, 0.45, 67.0), (0.03, 0.17, 3.0), False),  # its loader keeps up
        ((0.82, 0.99, 67.0), (0.03, 0.7, 3.0), False),  # its peers' are hardly faster
        ((0.07, 0.99, 67.0), (0.03, 0.17, 3.0), False),
        ((0.82, 0.99, 4.4), (0.03, 0.17, 3.0), False),
        ((0.82, None, 67.0), (0.06, None, 3.0), False),  # theirs may starve unseen
        ((0.82, None, 67.0), (0.03, None, 3.0), True),
    ],
)
def test_one_slow_loader(
    own: tuple[float, float | None, float], peers: tuple[float, float | None, float], slow: bool
) -> None:
    waits = batches(peers, peers, own, peers)
    assert (cost_of_slow_input(job(cpu=0.8), waits, 2) is not None) is slow
    on_time = job(Lateness(2 * SECOND, 100), cpu=0.8)
    assert cost_of_slow_input(on_time, waits, 2) is None


def test_a_loader_that_its_machine_delays_is_not_slow() -> None:
    waits = batches(*[(0.03, 0.17, 3.0)] * 2, (0.82, 0.99, 67.0))
    as_quick = {r: replace(w, batch_ms=8.0 if r != 2 else 11.9) for r, w in waits.items()}
    assert cost_of_slow_input(job(cpu=0.8), waits, 2) is not None
    assert cost_of_slow_input(job(cpu=0.8), as_quick, 2) is None
    assert cost_of_slow_input(job(cpu=0.8, waited=0.8), waits, 2) is None
