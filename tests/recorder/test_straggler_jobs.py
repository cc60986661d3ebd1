"""The straggler detector in real jobs of several ranks."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from conditions import wait_for
from recorder_support import Job

from hanglab.recorder.case import evidence_files as files

StartJob = Callable[..., Job]


def told(job: Job, rank: int = 0) -> list[dict[str, Any]]:
    lines = job.printed(rank).splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def worked_ms(job: Job, rank: int) -> list[float]:
    """How long each piece of a rank's work took, by its own clock."""
    (line,) = [text for text in job.printed(rank).splitlines() if text.startswith("worked ")]
    durations: list[float] = json.loads(line.removeprefix("worked "))
    return durations


#: So long a report waits for a rank that does not come.
PATIENCE_S = 3.0


def ended_well(job: Job) -> None:
    for rank in job.pids:
        assert job.status(rank) == 0, (job.runtime / f"rank{rank}.err").read_text()


def start(start_job: StartJob, mode: str, size: int, record: bool = False, **options: Any) -> Job:
    environment = {"MODE": mode, "OPTIONS": json.dumps(options)}
    return start_job("straggler_program.py", size, environment, record=record)


def go(job: Job) -> None:
    (job.runtime / "store.go").touch()


@pytest.mark.few(2)
@pytest.mark.parametrize("through", ["store", "folder"])
def test_four_ranks_scaled_by_rank_plus_one(
    start_job: StartJob, tmp_path: Path, through: str
) -> None:
    options = {"folder": str(tmp_path / "shared")} if through == "folder" else {}
    job = start(start_job, "scaled", 4, node_name="here", **options)
    ended_well(job)
    (report,) = told(job)
    scores = report["relative"]["sleep"]
    usual = [median(worked_ms(job, rank)) for rank in range(4)]
    assert usual == sorted(usual)
    for rank in range(4):
        assert scores[str(rank)] == pytest.approx(usual[0] / usual[rank], abs=0.03)
    assert report["below"] == {"sleep": [1, 2, 3]}
    # Nobody is slow where there is nothing to do, nor where one waits for the others.
    assert all(score > 0.9 for score in report["individual"]["empty"].values())
    assert report["gpus"] == [0, 0] and report["missing"] == {}
    assert report["nodes"] == {str(rank): "here" for rank in range(4)}
    assert "None" not in job.printed(1)
    assert told(job, 1) == []


def test_individual_scores_fall_when_a_rank_slows_half_way(start_job: StartJob) -> None:
    job = start(start_job, "slower half way", 2)
    ended_well(job)
    first, second = told(job)
    assert first["dropped"] == {} and first["below"] == {}
    assert second["dropped"] == {"sleep": [1]}
    assert second["individual"]["sleep"]["1"] < 0.75 < second["individual"]["sleep"]["0"]


def test_ranks_that_stop_together_are_told_the_interval_at_the_same_step(
    start_job: StartJob,
) -> None:
    job = start_job("straggler_watch_program.py", 2, {}, record=False)
    ended_well(job)
    first, second = (json.loads(job.printed(rank)) for rank in (0, 1))
    assert first == second
    assert first and first[0] >= 20


def test_a_report_appears_while_a_rank_hangs(start_job: StartJob) -> None:
    job = start(start_job, "hang", 3, record=True, report_time_interval=2)
    reports = wait_for(
        lambda: [
            line
            for line in (job.runtime / "rank0.err").read_text().splitlines()
            if "has not reported" in line
        ],
        "a report on the job that stands",
    )
    assert not any(job.ended(rank) for rank in job.pids)
    # The last rank alone is named, with what it does; those that wait for it are not.
    assert all("rank 2 has not reported for" in line for line in reports)
    assert "it has been in section 'data' for" in reports[0]
    lines = [json.loads(text) for text in evidence(job, 0)]
    # Again after twice the time, if this is read that late.
    unasked = [line for line in lines if line["kind"] == "report" and line["unasked"]]
    assert unasked
    for report in unasked:
        assert [missing["rank"] for missing in report["missing"]] == [2]
    go(job)
    ended_well(job)


def evidence(job: Job, rank: int) -> list[str]:
    return (job.rank(rank).folder / "straggler.jsonl").read_text().splitlines()


def test_a_rank_that_does_not_come_to_the_report(start_job: StartJob, tmp_path: Path) -> None:
    job = start(start_job, "late", 3, patience_s=PATIENCE_S, folder=str(tmp_path / "shared"))
    wait_for(lambda: len(told(job)) >= 3, "the second report")
    first, second, _ = told(job)
    assert first["missing"] == {}
    assert list(second["missing"]) == ["2"]
    since, last_window, text = second["missing"]["2"]
    assert PATIENCE_S - 0.1 < since < 30 and last_window == 1
    assert text.startswith("rank 2 has not reported for")
    # It is not held against anybody, and costs no more than was allowed for.
    assert second["relative"]["work"]["2"] is None and second["relative"]["work"]["1"] is not None
    assert second["below"] == {} and second["took_ms"] < 1e3 * (PATIENCE_S + 20)
    go(job)
    ended_well(job)
    third = told(job)[-1]
    assert third["number"] == 3 and third["missing"] == {}


def test_a_frozen_rank_does_not_hold_the_report(start_job: StartJob, tmp_path: Path) -> None:
    job = start(start_job, "frozen", 3, patience_s=PATIENCE_S, folder=str(tmp_path / "shared"))
    try:
        wait_for(lambda: len(told(job)) >= 1, "the first report")
        job.kill(2, signal.SIGSTOP)
        wait_for(lambda: len(told(job)) >= 3, "the second report")
        assert list(told(job)[1]["missing"]) == ["2"]
        go(job)
        assert job.status(0) == job.status(1) == 0
    finally:
        job.kill(2, signal.SIGCONT)


def test_a_rank_that_dies_between_reports(start_job: StartJob, tmp_path: Path) -> None:
    job = start(start_job, "dies", 3, patience_s=PATIENCE_S, folder=str(tmp_path / "shared"))
    for rank in (0, 1):
        assert job.status(rank) == 0
    assert os.waitstatus_to_exitcode(job.status(2)) == 3
    first, second = told(job)
    assert first["missing"] == {} and list(second["missing"]) == ["2"]
    assert set(second["relative"]["work"]) == {"0", "1", "2"}
    assert second["slow"] == []


def test_the_ranks_agree_on_when_a_report_is_due(start_job: StartJob) -> None:
    job = start(start_job, "interval", 3, report_time_interval=0.05)
    ended_well(job)
    reports = told(job)
    assert len(reports) >= 2
    steps = [report["step"] + 1 for report in reports]
    interval = steps[1] - steps[0]
    assert all(step % interval == 0 for step in steps)
    # Those of the last window, by each rank's own clock.
    last = slice(steps[-2], steps[-1])
    usual = [median(worked_ms(job, rank)[last]) for rank in range(3)]
    expected = pytest.approx(min(usual) / usual[2], abs=0.03)
    assert reports[-1]["relative"]["work"]["2"] == expected


def test_without_gathering_nothing_is_exchanged(start_job: StartJob) -> None:
    job = start(
        start_job,
        "alone",
        2,
        gather_on_rank0=False,
        scores_to_compute=["individual_perf_scores"],
    )
    ended_well(job)
    for rank in range(2):
        first, second = told(job, rank)
        assert first["rank"] == rank and first["relative"] == {}
        assert first["individual"] == {"sleep": {str(rank): 1.0}}
        took = worked_ms(job, rank)
        expected = min(1.0, median(took[:10]) / median(took[10:]))
        assert second["individual"]["sleep"][str(rank)] == pytest.approx(expected, abs=0.03)


def test_reports_are_evidence_of_a_recorded_job(start_job: StartJob) -> None:
    job = start(start_job, "scaled", 2, record=True)
    ended_well(job)
    for rank in range(2):
        case = job.rank(rank)
        (window,) = [line for line in case.read(files.STRAGGLER) if line.kind == "window"]
        assert window.number == 1 and window.rank == rank
        work = window.sections["sleep"].work
        assert work is not None and work.count == 10
        assert work.median == pytest.approx(median(worked_ms(job, rank)), rel=0.05)
        assert window.sections["reduce"].communication_ms > 0
        totals = {t.section: t.count for t in case.read(files.PROGRESS).section_totals}  # type: ignore[union-attr]
        assert totals["sleep"] == 10 and totals["empty"] == 10
    assert job.read().problems == []
