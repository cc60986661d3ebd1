"""The situation of a running job on a terminal and as lines, also of many ranks."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from rich.console import Console

from hanglab.harness.report.live.lines import ChangeLines
from hanglab.harness.report.live.ranks_at_work import RankAtWork
from hanglab.harness.report.live.running_buffers import ELSEWHERE
from hanglab.harness.report.live.screen import JobPace, situation_screen
from hanglab.harness.report.live.situation import RUNS, rows
from hanglab.harness.report.live.standing import EVERYBODY_IS_IN_IT as EVERYBODY
from hanglab.harness.report.live.standing import Standing

NOW_NS = 1_763_000_000 * 10**9


@pytest.fixture(autouse=True)
def it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: NOW_NS)


def at_work(rank: int, *, rested_s: float = 0.0, step: int = 40, ended: str = "") -> RankAtWork:
    host = f"node{rank // 8}"
    since = NOW_NS - int(rested_s * 1e9)
    return RankAtWork(rank, host, 1000 + rank, step, step + 1, 3 * step, since, rested_s, ended)


def hung(size: int, culprit: int) -> tuple[list[RankAtWork], dict[int, Standing]]:
    ranks = [at_work(rank, rested_s=41.0) for rank in range(size)]
    since = NOW_NS - 41 * 10**9
    standings = {
        rank: Standing("in all_reduce #15 of default_pg, train.py:88", since, (culprit,))
        for rank in range(size)
        if rank != culprit
    }
    standings[culprit] = Standing("outside of communication", since)
    return ranks, standings


def printed(ranks: list[RankAtWork], standings: dict[int, Standing], height: int = 24) -> str:
    console = Console(width=100, height=height, color_system=None)
    pace = JobPace()
    pace.note(ranks, 0.0)
    with console.capture() as capture:
        console.print(situation_screen(console, Path("case"), ranks, rows(ranks, standings), pace))
    return capture.get()


def test_a_thousand_ranks_are_two_rows() -> None:
    ranks, standings = hung(1024, 717)
    told = rows(ranks, standings)
    assert [(row.ranks[0], len(row.ranks), row.waits_for) for row in told] == [
        (717, 1, ()),
        (0, 1023, (717,)),
    ], "who holds the others up comes first"
    lines = printed(ranks, standings).splitlines()
    assert len(lines) < 8 and max(map(len, lines)) <= 100
    assert "1,024 ranks on 128 hosts" in lines[0] and "41 steps so far" in lines[0]
    assert re.search(r"^717 +40 +outside of communication +41 s +1717", lines[2])
    assert re.search(r"^0-716 and 718-1023 +40 +in all_reduce #15 .* 41 s +rank 717", lines[3])


def test_kinds_of_ranks_beyond_the_screen_are_counted() -> None:
    ranks = [at_work(rank, rested_s=5.0) for rank in range(60)]
    standings = {rank: Standing(f"in section {rank}", NOW_NS) for rank in range(60)}
    text = printed(ranks, standings, height=20)
    assert len(text.splitlines()) <= 20 and "more kinds of ranks" in text


def test_each_change_is_a_line_once() -> None:
    lines, pace = ChangeLines(), JobPace()
    moving = [at_work(rank) for rank in range(4)]
    assert {row.doing for row in rows(moving, {})} == {RUNS}
    first = lines.new(moving, rows(moving, {}), pace, 0.0)
    assert len(first) == 1 and "4 ranks on 1 host" in first[0]
    assert lines.new(moving, rows(moving, {}), pace, 0.5) == []
    ranks, standings = hung(4, 1)
    told = lines.new(ranks, rows(ranks, standings), pace, 1.0)
    assert len(told) == 2
    assert "rank 1 is outside of communication, since" in told[0]
    assert (
        "ranks 0, 2 and 3 are in all_reduce #15 of default_pg, train.py:88, for rank 1" in told[1]
    )
    assert lines.new(ranks, rows(ranks, standings), pace, 1.5) == []
    (again,) = lines.new(moving, rows(moving, {}), pace, 2.0)
    assert again.endswith("all ranks move again")
    gone = [*moving[:3], at_work(3, ended="ended by signal 9")]
    (last,) = lines.new(gone, rows(gone, {}), pace, 2.5)
    assert last.endswith("rank 3 ended by signal 9")


def test_what_cannot_be_known_is_said_in_place_of_the_ranks() -> None:
    ranks = [at_work(rank, rested_s=5.0) for rank in range(4)]
    standings = {
        rank: Standing("its device is in all_reduce #6 of default_pg", NOW_NS, (), EVERYBODY)
        for rank in (0, 1)
    }
    away = f"not told: {ELSEWHERE}"
    standings |= {rank: Standing("in section forward", NOW_NS, (), away) for rank in (2, 3)}
    text = printed(ranks, standings)
    assert re.search(r"^0 and 1 +40 .* nobody: all are in it", text, re.M), text
    assert "not told: it runs on" in text
    lines, pace = ChangeLines(), JobPace()
    told = lines.new(ranks, rows(ranks, standings), pace, 1.0)
    assert any(
        "the devices of ranks 0 and 1 are in all_reduce #6 of default_pg (nobody: all are in it)"
        in line
        for line in told
    )
    assert any(f"ranks 2 and 3 are in section forward ({away})" in line for line in told)
