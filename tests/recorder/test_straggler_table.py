"""Many sections at once: a window's numbers are those of each section by itself."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hanglab.recorder.slowness import Summary, ratio, relative_scores, summarize
from hanglab.recorder.straggler import window_encoding
from hanglab.recorder.straggler.measurement import Measurements
from hanglab.recorder.straggler.peers import Peers, PeerWindows
from hanglab.recorder.straggler.reporting import Missing
from hanglab.recorder.straggler.scoring import INDIVIDUAL, RELATIVE, make_report
from hanglab.recorder.straggler.table import SectionTable
from hanglab.recorder.straggler.window import SectionWindow, TimingWindow, WaitState

exactly = pytest.mark.skipif(
    sys.version_info >= (3, 12),
    reason="Python's sum does more than to add up: run with 3.11 or older",
)


class OneByOne:
    """The arithmetic of a window, a section and an entry at a time."""

    def __init__(self) -> None:
        self.best: dict[str, Summary] = {}

    def section(self, name: str, entries: list[Any], cpu: list[int] | None) -> SectionWindow:
        whole = [e if isinstance(e, tuple) else (e, 0, 0) for e in entries]
        wall = summarize([w / 1e6 for w, _, _ in whole])
        work = summarize([max(0, w - c - r) / 1e6 for w, c, r in whole])
        if cpu is not None:
            work = summarize([ns / 1e6 for ns in cpu])
        best, individual = self.best.get(name), None
        if work is not None:
            if best is None or work.median < best.median:
                best = work
                self.best[name] = work._replace(stretch_medians=(), stretch_means=())
            individual = ratio(best.median, work.median)
        return SectionWindow(
            work=work,
            measure="wall" if cpu is None else "processor",
            wall=wall,
            communication_ms=sum(c for _, c, _ in whole) / len(whole) / 1e6,
            input_ms=sum(r for _, _, r in whole) / len(whole) / 1e6,
            best=best if best is not work else None,
            individual=individual,
        )


def entries(generator: random.Random, waits: bool) -> list[Any]:
    count = generator.choice([0, 1, 7, 50, 50, 50])
    found: list[Any] = []
    for _ in range(count):
        wall = generator.randrange(10**5, 10**7)
        if waits and generator.random() < 0.5:
            found.append((wall, generator.randrange(wall), generator.choice([0, 10**4])))
        else:
            found.append(wall)
    return found


@exactly
@pytest.mark.parametrize("seed", range(10))
def test_a_windows_sections_are_what_each_comes_to_by_itself(seed: int) -> None:
    generator = random.Random(seed)
    measuring, alone = Measurements("node", 0), OneByOne()
    kinds = {
        f"section {n}": generator.choice(["plain", "plain", "waits", "hidden"]) for n in range(40)
    }
    for number in range(1, 5):
        expected = {}
        for name, kind in kinds.items():
            section = measuring.declare(name, "here", False, "work")
            taken = entries(generator, kind == "waits")
            section.entries.extend(taken)
            section.waited = kind == "waits"
            cpu = [generator.randrange(10**6) for _ in taken] if kind == "hidden" else None
            section.hidden = cpu is not None
            section.cpu.extend(cpu or ())
            if taken:
                expected[name] = alone.section(name, taken, cpu)
        window = measuring.take(number, (), keep=False)
        assert window.sections == expected
        assert {n: s.wall.statistics() for n, s in expected.items() if s.wall is not None} == (
            SectionTable.of(window.sections).statistics()
        )
        sent = window_encoding.unpack(window_encoding.pack(replace(window, rank=3)))
        assert sent.sections == {n: replace(s, wall=None) for n, s in expected.items()}
    measuring.close()


def test_what_is_kept_is_in_the_next_window_too() -> None:
    measuring = Measurements("node", 0)
    section = measuring.declare("section", "here", False, "work")
    section.entries.extend([2_000_000] * 5)
    kept = measuring.take(0, (), keep=True)
    section.entries.append(2_000_000)
    taken = measuring.take(1, (), keep=False)
    section.entries.extend([4_000_000] * 5)
    later = measuring.take(2, (), keep=False)
    measuring.close()
    counts = [w.sections["section"].work for w in (kept, taken)]
    assert [s and s.count for s in counts] == [5, 6]
    assert kept.sections["section"].best is None and taken.sections["section"].best is None
    assert later.sections["section"].individual == 0.5


def window(rank: int, medians: Mapping[str, float | None]) -> TimingWindow:
    sections = {
        name: SectionWindow(
            None if ms is None else summarize([ms] * 10),
            "wall",
            wall=summarize([20.0]),
            individual=None if ms is None else 1 / (1 + ms),
        )
        for name, ms in medians.items()
    }
    return TimingWindow(number=1, rank=rank, node=f"node {rank}", span_ms=1e3, sections=sections)


@pytest.mark.parametrize("gathered", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_scores_are_those_of_each_section_by_itself(seed: int, gathered: bool) -> None:
    generator = random.Random(seed)
    names = [f"section {n}" for n in range(12)]
    windows = {
        rank: window(
            rank,
            {
                name: generator.choice([None, 0.0, 0.001, generator.uniform(1, 20)])
                for name in generator.sample(names, generator.randint(0, len(names)))
            },
        )
        for rank in range(generator.choice([1, 2, 4]))
    }
    missing = {len(windows): Missing(len(windows), 1.0, 0)} if generator.random() < 0.5 else {}
    world_size = len(windows) + len(missing)
    report = make_report(
        windows[0],
        PeerWindows(world_size, {r: w for r, w in windows.items() if r}, missing),
        scores=[RELATIVE, INDIVIDUAL],
        gathered=gathered,
        unasked=False,
        warnings=(),
        elapsed_ms=1.0,
    )
    ranks = [*windows, *missing] if gathered else [0]
    told = {n for rank in ranks if rank in windows for n in windows[rank].sections}
    assert list(report.section_relative_perf_scores) == sorted(told)
    assert list(report.section_individual_perf_scores) == sorted(told)
    for name in told:
        found = {r: w.sections.get(name) for r, w in windows.items()} | dict.fromkeys(missing)
        medians = {r: s.work.median if s and s.work else None for r, s in found.items()}
        scores = relative_scores(medians, alone=world_size == 1)
        assert report.section_relative_perf_scores[name] == {r: scores[r] for r in ranks}
        individual = {r: s.individual if s else None for r, s in found.items()}
        assert report.section_individual_perf_scores[name] == {r: individual[r] for r in ranks}
    assert set(report.local_section_summaries) == set(windows[0].sections)


@pytest.mark.parametrize(("gathering", "published"), [(True, {1}), (False, {0, 1})])
def test_nobody_publishes_a_window_that_nobody_reads(
    gathering: bool, published: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in (0, 1):
        monkeypatch.setenv("RANK", str(rank))
        peers = Peers("prefix", tmp_path, True, gathering, False, lambda: None)
        peers.publish(window(rank, {"section": 1.0}), unasked=False)
        peers.close()
    assert {int(path.name[-1]) for path in tmp_path.rglob("window*")} == published


def test_a_rank_that_says_late_where_it_stands_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a crowded host; it only waits for others, and would be named for what they wait for."""

    def waits(rank: int) -> WaitState:
        return WaitState(rank, "node", 0, 3.0, communicating_s=3.0)

    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("RANK", "0")
    peers = Peers("prefix", tmp_path, True, True, False, lambda: None)
    others = {rank: Peers("prefix", tmp_path, True, True, False, lambda: None) for rank in (1, 2)}
    asked = threading.Event()
    looked = peers._standings

    def look(ranks: Iterable[int], patience_s: float = 0.0) -> dict[int, WaitState]:
        asked.set()
        return looked(ranks, patience_s)

    def speak_late() -> None:
        asked.wait()
        for rank, other in others.items():
            text = replace(waits(rank), communicating_s=None if rank == 2 else 3.0).to_json()
            other._carrier().publish(f"standing/{rank}", text)

    monkeypatch.setattr(peers, "_standings", look)
    late = threading.Thread(target=speak_late)
    late.start()
    peers.await_standings(280.0)
    late.join()
    assert sorted(peers.collect_standings(waits(0)).missing) == [2]
    for one in (peers, *others.values()):
        one.close()
