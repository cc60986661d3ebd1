"""One job whose launcher, ranks or disk fail: an outcome with its artifacts, never a traceback."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hanglab.analyzer.verdict import Cause
from hanglab.harness.hosts import ThisMachine
from hanglab.harness.jobs.outcome import Outcome
from hanglab.harness.jobs.run import Result, RunRequest, run
from hanglab.harness.jobs.run_folder import JobFolder, RunFolder, Variant
from hanglab.harness.jobs.running import run_all
from hanglab.harness.launchers.protocol import JobPlan, LaunchError, RankExit
from hanglab.harness.launchers.selection import Launchers
from hanglab.harness.launchers.supervision.agent_process import Agent
from hanglab.harness.scenarios.declaration import Expect, Scenario
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import CaseReader


class NoRanks:
    """A job that was started and in which nothing ever happens."""

    def __init__(self, runtime_dir: Path) -> None:
        self.runtime_dir = runtime_dir
        self.pids: Mapping[int, int] = {}
        self.ended = False
        self.injects = False
        self.hosts = ThisMachine(self.pids)
        self.plan: JobPlan | None = None

    def record(self, hang_after_s: float) -> Agent:
        assert self.plan is not None
        return Agent(
            self.plan.case_dir,
            self.runtime_dir,
            world_size=self.plan.world_size,
            hang_after_s=hang_after_s,
            log=self.plan.agent_log,
        )

    def events(self, timeout: float) -> list[RankExit]:
        threading.Event().wait(timeout)
        return []

    def alive(self) -> bool:
        return not self.ended

    def end(self) -> None:
        self.ended = True


class LateWord(NoRanks):
    """Its ranks have failed, but word of that comes only when the job is ended."""

    def events(self, timeout: float) -> list[RankExit]:
        if not self.ended:
            return super().events(timeout)
        assert self.plan is not None
        return [RankExit(rank, 1, None, self.plan.log_dir / f"rank{rank}.err") for rank in (0, 1)]


class FakeLauncher:
    name = "fake"

    def __init__(self, job: NoRanks | None) -> None:
        self.job = job
        self.plans: list[JobPlan] = []

    def start(self, plan: JobPlan) -> NoRanks:
        self.plans.append(plan)
        if self.job is None:
            raise LaunchError("no rank could be started")
        self.job.plan = plan
        return self.job

    def close(self) -> None:
        pass


def request(folder: Path, deadline_s: float = 60.0, variant: Variant = "fault") -> RunRequest:
    program = folder / "train.py"
    scenario = Scenario(
        name="some",
        source=program,
        line=1,
        function="some",
        program=program,
        expect=Expect(Cause.MISSING_RANK, culprits={1}, location=None),
    )
    return RunRequest(
        scenario=scenario,
        variant=variant,
        repetition=0,
        seed=3,
        backend="gloo",
        world_size=2,
        hang_after_s=30.0,
        deadline_s=deadline_s,
    )


def run_fake(
    tmp_path: Path, job: NoRanks | None, stop: threading.Event | None = None, **more: Any
) -> tuple[Result, JobFolder, FakeLauncher]:
    folder = RunFolder.create(tmp_path / "runs").job("some", "fault", 0)
    launcher = FakeLauncher(job)
    asked = request(tmp_path, **more)
    return run(asked, folder, launcher, stop or threading.Event()), folder, launcher


def test_a_launcher_that_fails_is_a_harness_error(tmp_path: Path) -> None:
    result, folder, launcher = run_fake(tmp_path, None)
    assert result.outcome is Outcome.HARNESS_ERROR
    assert "no rank could be started" in result.judgement.reason
    assert LaunchError.advice in result.detail
    assert result.detail in folder.harness_log.read_text()
    assert json.loads(folder.truth.read_text())["outcome"] == "harness error"
    assert launcher.plans[0].environment["HANGLAB_SEED"] == "3"


def test_the_deadline_ends_a_job_that_never_began(tmp_path: Path) -> None:
    job = NoRanks(tmp_path)
    result, folder, _ = run_fake(tmp_path, job, deadline_s=1.0)
    assert job.ended
    assert result.outcome is not Outcome.PASS
    assert json.loads(folder.truth.read_text())["trigger"]["kind"] == "deadline"
    assert (folder.case / "manifest.json").is_file()


def test_ranks_that_failed_count_although_word_of_it_comes_late(tmp_path: Path) -> None:
    """On a busy machine the agent sees the end of a rank long before its parent tells of it."""
    result, folder, _ = run_fake(tmp_path, LateWord(tmp_path), variant="control", deadline_s=1.0)
    truth = json.loads(folder.truth.read_text())
    assert [(gone["rank"], gone["code"]) for gone in truth["exits"]] == [(0, 1), (1, 1)]
    assert result.judgement.reason == "the control failed by itself, on rank 0, 1"
    for rank in CaseReader(folder.case).ranks:
        assert rank.read(files.EXIT) is not None and not rank.read(files.EXIT).by_recorder
    assert not json.loads((folder.case / "job.json").read_text())["ended_by_recorder"]


def test_an_interrupt_ends_the_job_and_keeps_its_case(tmp_path: Path) -> None:
    job = NoRanks(tmp_path)
    stop = threading.Event()
    stop.set()
    result, folder, _ = run_fake(tmp_path, job, stop)
    assert job.ended
    assert result.judgement.reason == "interrupted"
    assert (folder.case / "manifest.json").is_file()


def test_a_job_folder_that_cannot_be_made_costs_only_its_job(tmp_path: Path) -> None:
    class Listener:
        def phase(self, request: RunRequest, phase: str) -> None:
            pass

        def result(self, result: Result) -> None:
            pass

    run_folder = RunFolder.create(tmp_path / "runs")
    (run_folder.path / "some").write_text("in the way")
    (result,) = run_all(
        [request(tmp_path)],
        run_folder,
        Launchers(lambda name: FakeLauncher(None)),
        1,
        threading.Event(),
        Listener(),
    )
    assert result.outcome is Outcome.HARNESS_ERROR
    assert "cannot be created" in result.judgement.reason


@pytest.mark.parametrize("text", ["", "garbage\n"])
def test_an_agent_that_dies_is_a_harness_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\nprintf '{text}'\n")
    fake.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(fake))
    job = NoRanks(tmp_path)
    result, _, _ = run_fake(tmp_path, job)
    assert job.ended
    assert result.outcome is Outcome.HARNESS_ERROR
    assert "agent ended" in result.judgement.reason
