"""Ranks that ended with their pods: told apart from hangs, and nobody accused by guess."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from hanglab.analyzer.engine import analyze
from hanglab.analyzer.verdict import Cause, Status, Verdict
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.case.records import (
    Clock,
    Exit,
    JobRecord,
    PodEnding,
    PodRecord,
    Python,
    RankProcess,
    Trigger,
)
from hanglab.recorder.case.writer import write, write_manifest

AT = Clock(10**18, 10**12)


def judged(
    case: Path,
    pods: Mapping[str, tuple[PodEnding | None, list[int]]],
    ended: Mapping[int, Exit] | None = None,
) -> Verdict:
    """The verdict on a job of four ranks whose pods ended so and have left those ranks."""
    for name, (ending, ranks) in pods.items():
        host = folders.host_folder(case, name)
        write(host, files.POD, PodRecord(AT, name, phase="Running", ending=ending))
        for rank in ranks:
            folder = folders.rank_folder(case, name, rank)
            process = RankProcess(100 + rank, rank, 4, AT, Python("3.11"))
            write(folder, files.PROCESS, process)
            if rank in (ended or {}):
                write(folder, files.EXIT, (ended or {})[rank])
    trigger = Trigger("no_progress", AT, 30.0)
    write(case, files.JOB, JobRecord(4, AT, 30.0, trigger))
    write_manifest(case, "test")
    return analyze(case)


@pytest.mark.parametrize(
    ("ending", "cause"),
    [
        ("evicted", Cause.HOST_LOST),
        ("preempted", Cause.HOST_LOST),
        ("node_lost", Cause.HOST_LOST),
        ("oom_killed", Cause.OOM_KILLED),
    ],
)
def test_ranks_without_evidence_were_in_the_pods_that_are_gone(
    tmp_path: Path, ending: PodEnding, cause: Cause
) -> None:
    verdict = judged(tmp_path, {"a": (None, [0, 1]), "b": (ending, [])})
    assert (verdict.status, verdict.cause, verdict.culprits) == (Status.HUNG, cause, [2, 3])
    assert verdict.victims == [0, 1] and "pod b" in verdict.evidence[0].detail


@pytest.mark.parametrize("other", [None, "failed", "oom_killed"])
def test_nobody_is_accused_where_another_pod_may_have_had_the_rank(
    tmp_path: Path, other: PodEnding | None
) -> None:
    verdict = judged(tmp_path, {"a": (None, [0, 1]), "b": ("evicted", []), "c": (other, [])})
    assert verdict.cause not in (Cause.HOST_LOST, Cause.OOM_KILLED)


def test_time_limit_accuses_nobody(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {"a": (None, [0, 1]), "b": ("deadline", [])})
    assert verdict.cause is not Cause.HOST_LOST


def test_rank_that_lives_is_not_lost_with_its_pod(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {"a": (None, [0, 1]), "b": ("preempted", [2, 3])})
    assert verdict.cause is not Cause.HOST_LOST
    ended = {2: Exit(AT, signal=15), 3: Exit(AT, signal=15)}
    again = judged(tmp_path / "again", {"a": (None, [0, 1]), "b": ("preempted", [2, 3])}, ended)
    assert (again.cause, again.culprits) == (Cause.HOST_LOST, [2, 3])
