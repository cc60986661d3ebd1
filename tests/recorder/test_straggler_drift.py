"""Reports on ranks that step together, on a machine whose speed changes."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hanglab.recorder.slowness import Summary, ratio, summarize
from hanglab.recorder.straggler.peers import PeerWindows
from hanglab.recorder.straggler.reporting import Report
from hanglab.recorder.straggler.scoring import INDIVIDUAL, RELATIVE, make_report
from hanglab.recorder.straggler.window import SectionWindow, TimingWindow

STEPS = 50


def speeds(generator: random.Random, slowest: float) -> list[float]:
    """How many times as long the machine takes, step by step."""
    speed, walk = 1.0, []
    for _ in range(STEPS):
        speed = min(slowest, max(1.0, speed + generator.gauss(0, 0.1)))
        walk.append(speed)
    return walk


def window(
    rank: int,
    factor: float,
    walk: Sequence[float],
    generator: random.Random,
    best: TimingWindow | None,
) -> TimingWindow:
    """One of the section ``step``, of 10 ms each at full speed."""
    work = summarize([factor * speed * generator.gauss(10, 0.3) for speed in walk])
    assert work is not None
    past = best.sections["step"].work if best is not None else None
    return TimingWindow(
        number=1 if best is None else 2,
        rank=rank,
        node="node",
        span_ms=1000.0,
        sections={
            "step": SectionWindow(
                work=work,
                measure="wall",
                best=past,
                individual=1.0 if past is None else ratio(past.median, work.median),
            )
        },
    )


def report(windows: Sequence[TimingWindow]) -> Report:
    own, *others = windows
    return make_report(
        own,
        PeerWindows(len(windows), {w.rank: w for w in others}),
        scores=[RELATIVE, INDIVIDUAL],
        gathered=True,
        unasked=False,
        warnings=(),
        elapsed_ms=1.0,
    )


def accused(seed: int, factors: Sequence[float], before: float, now: float) -> dict[str, set[int]]:
    """By each judgement of the second window; the machine takes up to so many times as long."""
    generator = random.Random(seed)
    calm, walk = speeds(generator, before), speeds(generator, now)
    windows = []
    for rank, factor in enumerate(factors):
        first = window(rank, 1.0, calm, generator, None)
        windows.append(window(rank, factor, walk, generator, first))
    found = report(windows)
    below = found.identify_stragglers()
    return {
        "slow": {slow.rank for slow in found.slow_sections()},
        "relative": {s.rank for ids in below["straggler_sections_relative"].values() for s in ids},
        "individual": {
            s.rank for ids in below["straggler_sections_individual"].values() for s in ids
        },
    }


def test_a_third_more_work_is_found_in_every_window() -> None:
    for seed in range(100):
        assert accused(seed, [1, 1, 1.3, 1], 2.0, 2.0)["slow"] == {2}, seed


def test_a_machine_that_slows_down_makes_no_stragglers() -> None:
    for seed in range(500):
        found = accused(seed, [1, 1, 1, 1], 1.0, 3.0)
        assert not any(found.values()), (seed, found)


def test_a_rank_that_slows_down_more_than_the_machine_is_a_straggler() -> None:
    for seed in range(50):
        found = accused(seed, [1, 2, 1, 1], 1.5, 1.5)
        assert found == {"slow": {1}, "relative": {1}, "individual": {1}}, seed


def test_a_rank_alone_is_measured_by_its_past() -> None:
    generator = random.Random(0)
    calm = [1.0] * STEPS
    first = window(0, 1.0, calm, generator, None)
    found = report([window(0, 2.0, calm, generator, first)]).identify_stragglers()
    assert set(found["straggler_sections_individual"]) == {"step"}


def test_a_peer_that_is_slower_by_chance_excuses_nobody() -> None:
    def noisy(rank: int, usual: float, past: float) -> TimingWindow:
        def around(middle: float) -> Summary:
            summary = summarize([middle + (7 * n) % 13 - 6 for n in range(30)])
            assert summary is not None
            return summary

        score = ratio(past, usual)
        section = SectionWindow(around(usual), "wall", best=around(past), individual=score)
        return TimingWindow(2, rank, "node", 1e3, {"step": section})

    found = report([noisy(0, 11.0, 9.5), noisy(1, 20.0, 13.7)]).identify_stragglers()
    assert {s.rank for s in found["straggler_sections_individual"]["step"]} == {1}
