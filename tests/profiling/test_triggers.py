"""What becomes slow has a trace taken, and not too often."""

from __future__ import annotations

from pathlib import Path

from hanglab.recorder.case.progress_records import OpenSection, Progress, SectionEvent
from hanglab.recorder.profiling.triggers import Limiter, SlownessFlags, slow_stretch

MS = 1_000_000


def progress(walls_ms: list[float], open_since_ms: float | None = None) -> Progress:
    """Sections of one name, one after the other from time 0."""
    events = []
    at = 0
    for step, wall in enumerate(walls_ms):
        events.append(SectionEvent("forward", at, int(wall * MS), 0, step))
        at += int(wall * MS)
    going = [] if open_since_ms is None else [OpenSection("forward", int(open_since_ms * MS))]
    return Progress(1, 0, 0, 0, 0, None, 0, section_events=events, open_sections=going)


def test_section_of_many_times_its_median_is_slow() -> None:
    slow = slow_stretch(progress([10.0] * 20 + [80.0]), 5.0, 0, 1000 * MS)
    assert slow is not None
    assert str(slow) == "forward took 80 ms, its median is 10 ms"


def test_one_that_goes_on_is_slow_before_it_ends() -> None:
    found = progress([10.0] * 20, open_since_ms=200)
    assert slow_stretch(found, 5.0, 0, 230 * MS) is None
    assert slow_stretch(found, 5.0, 0, 300 * MS) is not None


def test_only_what_came_since_the_last_look_counts() -> None:
    found = progress([10.0] * 20 + [80.0])
    assert slow_stretch(found, 5.0, 280 * MS, 300 * MS) is None


def test_first_ones_and_jitter_of_short_ones_are_no_reason() -> None:
    assert slow_stretch(progress([500.0] + [10.0] * 20), 5.0, 0, 1000 * MS) is None
    assert slow_stretch(progress([0.1] * 20 + [5.0]), 5.0, 0, 1000 * MS) is None


def test_slow_step_counts_as_a_section_does() -> None:
    steps = [(number, number * 10 * MS) for number in range(20)]
    found = Progress(1, 0, 0, 0, 19, None, 0, steps=steps, phase="running")
    assert slow_stretch(found, 5.0, 0, 200 * MS) is None
    slow = slow_stretch(found, 5.0, 0, 300 * MS)
    assert slow is not None
    assert slow.name == "a step"


def test_limiter_lets_one_through_in_an_interval_and_few_in_all() -> None:
    limiter = Limiter(interval_s=60.0, most=2)
    assert [limiter.allow(now) for now in (0.0, 59.0, 60.0, 500.0)] == [True, False, True, False]


def test_ranks_that_a_report_calls_slow_are_seen_once(tmp_path: Path) -> None:
    file = tmp_path / "straggler.jsonl"
    flags = SlownessFlags()
    assert flags.look(file) == set()
    window = b'{"kind":"window","at":{"wall_ns":1,"mono_ns":1},"number":0}\n'
    report = b'{"kind":"report","at":{"wall_ns":1,"mono_ns":1},"number":0,"slow":[2]}\n'
    file.write_bytes(window + report[:30])
    assert flags.look(file) == set()
    file.write_bytes(window + report)
    assert flags.look(file) == {2}
    assert flags.look(file) == set()
