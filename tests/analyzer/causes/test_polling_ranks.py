"""A job whose ranks poll, and say so now and then, is not called healthy for what they say."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from views import job, user, view

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.facts.polls import is_older_than_job
from hanglab.analyzer.verdict import Status
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import RankCase
from hanglab.recorder.case.records import Poll

HANG_AFTER_S = 30.0


def polling(
    folder: Path, asked_s: float, *, ago_s: float = 0.4, function: str = "train", ranks: int = 3
) -> CaseFacts:
    """Three ranks that moved just now, of which ``ranks`` have asked for a file for so long."""
    views = [view(r, user(31), wchan="hrtimer_nanosleep", quiet_s=0.2) for r in range(3)]
    row = Poll(
        kind="file", what="/data/ready", call="exists", found=False, count=int(asked_s),
        asked_s=asked_s, ago_s=ago_s, file="/home/me/train.py", function=function, line=31,
    )  # fmt: skip
    for one in views[:ranks]:
        own = folder / str(one.rank)
        own.mkdir()
        (own / files.POLLS.name).write_bytes(msgspec.json.encode([row]))
        one.case = RankCase(own, one.host, one.rank, 0, [])
    known = job(views, trigger="request")
    assert known.job is not None
    known.job.hang_after_s = HANG_AFTER_S
    return known


def test_who_has_asked_the_same_for_as_long_as_a_hang_takes_makes_no_progress(
    tmp_path: Path,
) -> None:
    verdict = conclude(polling(tmp_path, 40.0))
    assert verdict.status is not Status.HEALTHY


@pytest.mark.parametrize(
    ("asked_s", "ago_s", "function", "ranks"),
    [
        (12.0, 0.4, "train", 3),  # It asks since a short time.
        (40.0, 20.0, "train", 3),  # It has gone on from there.
        (40.0, 0.4, "prepare", 3),  # Its main thread is elsewhere.
        (40.0, 0.4, "train", 2),  # Another one comes further.
    ],
)
def test_else_what_moves_is_progress(
    asked_s: float, ago_s: float, function: str, ranks: int, tmp_path: Path
) -> None:
    facts = polling(tmp_path, asked_s, ago_s=ago_s, function=function, ranks=ranks)
    assert conclude(facts).status is Status.HEALTHY


@pytest.mark.parametrize(
    ("before_s", "by_host", "older"),
    [(0.3, True, True), (0.01, True, False), (0.3, False, False), (90.0, False, True)],
)
def test_a_file_is_older_than_the_job_by_the_clock_that_dates_it(
    before_s: float, by_host: bool, older: bool
) -> None:
    """Servers of files have clocks of their own; the host's ticks."""
    facts = job([view(rank, user(31)) for rank in range(3)])
    starts = [one.process.started.wall_ns for one in facts.ranks.values() if one.process]
    poll = Poll(
        kind="file", what="/build/lock", call="exists", found=True, count=9, asked_s=8.0, ago_s=0.1,
        changed_ns=min(starts) - round(before_s * 1e9), by_host=by_host,
    )  # fmt: skip
    assert is_older_than_job(facts, poll) is older
