"""A rank's waits for a processor are no slowness of its own."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from hanglab.recorder.slowness import RunQueue, summarize
from hanglab.recorder.straggler import run_queue_delay
from hanglab.recorder.straggler.peers import PeerWindows
from hanglab.recorder.straggler.scoring import RELATIVE, make_report
from hanglab.recorder.straggler.window import SectionWindow, TimingWindow


def count(path: Path, waited_ns: int, ran_ns: int = 1) -> None:
    path.write_text(f"{ran_ns} {waited_ns} 3\n")


def test_waits_are_those_since_the_last_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_queue_delay, "_COUNT", tmp_path / "schedstat")
    count(tmp_path / "schedstat", 5_000_000)
    waits = run_queue_delay.RunQueueDelay()
    count(tmp_path / "schedstat", 7_500_000, 4_000_001)
    assert waits.take() == RunQueue(2.5, 4.0)
    assert waits.take() == RunQueue(0.0, 0.0)


def test_another_threads_waits_are_not_taken_for_the_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_queue_delay, "_COUNT", tmp_path / "schedstat")
    count(tmp_path / "schedstat", 0)
    waits = run_queue_delay.RunQueueDelay()
    told: list[RunQueue | None] = []
    thread = threading.Thread(target=lambda: told.append(waits.take()))
    thread.start()
    thread.join(280)
    assert told == [None]


def test_a_kernel_that_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_queue_delay, "_COUNT", tmp_path / "missing")
    assert run_queue_delay.RunQueueDelay().take() is None


def window(rank: int, ms: float, run_queue: RunQueue) -> TimingWindow:
    work = summarize([ms + n % 5 / 10 for n in range(50)])
    return TimingWindow(
        1,
        rank,
        "node",
        1e3,
        {"step": SectionWindow(work, "wall")},
        run_queue=run_queue,
    )


def accused(windows: list[TimingWindow]) -> tuple[set[int], set[int]]:
    report = make_report(
        windows[0],
        PeerWindows(len(windows), {w.rank: w for w in windows}),
        scores=[RELATIVE],
        gathered=True,
        unasked=False,
        warnings=(),
        elapsed_ms=1.0,
    )
    below = report.identify_stragglers()["straggler_sections_relative"]
    return {s.rank for s in report.slow_sections()}, {s.rank for ids in below.values() for s in ids}


def test_a_report_accuses_nobody_of_a_busy_machine() -> None:
    windows = [
        window(r, ms, RunQueue(d)) for r, ms, d in ((0, 10, 50.0), (1, 10, 60.0), (2, 20, 560.0))
    ]
    assert accused(windows) == (set(), set())
    assert accused([replace(w, run_queue=None) for w in windows]) == ({2}, {2})
    assert accused([replace(w, run_queue=RunQueue(50.0)) for w in windows]) == ({2}, {2})


def test_a_section_has_its_part_of_the_delay_and_no_more() -> None:
    """As measured beside ten busy processes: 98 ms in a section that is half of what a rank does,
    and 125 ms an entry for which it waited for a processor, in all of it."""
    crowded = RunQueue(50 * 125.0, 50 * 75.0)
    windows = [window(0, 2.8, RunQueue(300.0, 300.0)), window(1, 98, crowded)]
    assert accused(windows) == ({1}, {1})
    # What works as long as its peer, and waits for a processor in the rest of the time.
    windows = [window(0, 40, RunQueue(0.0, 2000.0)), window(1, 98, crowded)]
    assert accused(windows) == (set(), set())
    assert RunQueue(50.0, 0.0).delay_within(20.0, 50) == 1.0
    assert RunQueue(0.0, 0.0).delay_within(20.0, 50) == 0.0
