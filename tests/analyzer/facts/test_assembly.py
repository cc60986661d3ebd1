"""Evidence out of a Case: nothing that came after the capture."""

from __future__ import annotations

from pathlib import Path

import pytest

from hanglab.analyzer.engine import conclude
from hanglab.analyzer.errors import InputError
from hanglab.analyzer.facts.assembly import from_case, gather_worlds
from hanglab.analyzer.facts.host import HostView
from hanglab.analyzer.verdict import Status
from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders
from hanglab.recorder.case.records import (
    Clock,
    Exit,
    HostRecord,
    JobRecord,
    ProcessSample,
    Python,
    Raised,
    RankProcess,
    Trigger,
)
from hanglab.recorder.case.writer import write, write_manifest
from hanglab.recorder.rank.progress_file import ProgressFile

CAPTURED = Clock(5_000, 5_000)


@pytest.fixture
def rank(tmp_path: Path) -> Path:
    """The folder of rank 0 of a Case that was captured at 5,000."""
    folder = folders.make_private(folders.rank_folder(tmp_path, "host", 0))
    start = Clock(1_000, 1_000)
    write(folder, files.PROCESS, RankProcess(7, 0, 1, start, Python("3.11")))
    write(tmp_path, files.JOB, JobRecord(1, start, 1.5, Trigger("no_progress", CAPTURED, 2.0)))
    return folder


@pytest.mark.parametrize("below", ["one", "latest/hang/fault/0/case"])
def test_a_folder_of_cases_is_no_folder_of_dumps(tmp_path: Path, below: str) -> None:
    """Its dumps would be judged, and all else that the Cases hold be left out."""
    folder = folders.make_private(folders.rank_folder(tmp_path / below, "host", 0))
    write(folder, files.EXIT, Exit(CAPTURED, code=0))
    write_manifest(tmp_path / below, "test")
    with pytest.raises(InputError, match="holds a Case and is none itself") as caught:
        gather_worlds(tmp_path)
    assert str(tmp_path / below) in caught.value.advice
    assert gather_worlds(tmp_path / below)[0].case is not None


def view_of(rank: Path):  # type: ignore[no-untyped-def]
    return from_case(rank.parents[3]).ranks[0]


def test_a_file_that_only_a_heuristic_reads_is_unusable_where_damaged(rank: Path) -> None:
    (rank / files.FILE_LOCKS.name).write_text('{"pid": 7}\nno JSON\n')
    facts = from_case(rank.parents[3])
    assert not facts.inputs.unusable
    for verdict in (conclude(facts), conclude(facts)):
        first, second = verdict.inputs.unusable
        assert first.file == second.file == str(rank / files.FILE_LOCKS.name)
        assert (first.reason[:17], second.reason[:17]) == ("line 1 is damaged", "line 2 is damaged")


def test_detectors_read_the_files_of_ranks_and_of_hosts(rank: Path) -> None:
    write(rank.parents[1], files.HOST, HostRecord("host", 2, 1 << 30, "6.1", Clock(1_000, 1_000)))
    facts = from_case(rank.parents[3])
    host = facts.host_of(0).read(files.HOST)
    assert host is not None and host.cpus == 2
    assert facts.ranks[0].read(files.EXIT) is None
    assert HostView().read(files.HOST) is None


@pytest.mark.parametrize(("at", "count"), [(4_000, 1), (6_000, 0)])
def test_exceptions_after_the_capture_are_no_evidence(rank: Path, at: int, count: int) -> None:
    write(rank, files.EXCEPTIONS, [Raised(Clock(at, at), "E", "e", [])])
    write(rank, files.HANDLED, [Raised(Clock(at, at), "E", "e", [])])
    view = view_of(rank)
    assert (len(view.exceptions), len(view.handled)) == (count, count)


@pytest.mark.parametrize(
    ("at", "code", "state", "known"),
    [
        (4_000, 1, "S", True),
        (6_000, 1, "S", False),
        # It had gone already; somebody told of it late.
        (6_000, 1, "Z", True),
        # It came to its end all the same: it had not hung.
        (6_000, 0, "S", True),
    ],
)
def test_an_end_after_the_capture_proves_nothing_bad(
    rank: Path, at: int, code: int, state: str, known: bool
) -> None:
    write(rank, files.EXIT, Exit(Clock(at, at), code))
    write(rank, files.PROCESSES, [ProcessSample(CAPTURED, 7, 1, "rank", state, cpu_s=0.0)])
    assert (view_of(rank).ended is not None) is known


@pytest.mark.parametrize(
    ("main", "at", "known"), [(True, 4_500, True), (True, 5_500, False), (False, 4_500, False)]
)
def test_who_had_raised_by_the_capture_failed_however_late_it_was_gone(
    rank: Path, main: bool, at: int, known: bool
) -> None:
    write(rank, files.EXCEPTIONS, [Raised(Clock(at, at), "E", "e", [], main=main)])
    write(rank, files.EXIT, Exit(Clock(6_000, 6_000), 1))
    write(rank, files.PROCESSES, [ProcessSample(CAPTURED, 7, 1, "rank", "S", cpu_s=0.0)])
    assert view_of(rank).failed is known


@pytest.mark.parametrize(
    ("kind", "code", "interrupted", "step"),
    [
        ("no_progress", 1, None, 4),
        # All ended well: nothing had hung, and the whole job counts.
        ("no_progress", 0, None, 9),
        ("request", 0, None, 9),
        # Whoever is interrupted ends for that reason, however well.
        ("interrupt", 0, None, 4),
        ("no_progress", 0, Clock(5_500, 5_500), 4),
    ],
)
def test_progress_is_that_of_the_capture(
    rank: Path, kind: str, code: int, interrupted: Clock | None, step: int
) -> None:
    trigger = Trigger(kind, CAPTURED, 2.0)  # type: ignore[arg-type]
    job = JobRecord(1, Clock(1_000, 1_000), 1.5, trigger, interrupted=interrupted)
    write(rank.parents[3], files.JOB, job)
    write(rank, files.EXIT, Exit(Clock(6_000, 6_000), code))
    write(rank, files.PROCESSES, [ProcessSample(CAPTURED, 7, 1, "rank", "S", cpu_s=0.0)])
    for name, number in ((files.PROGRESS.snapshot_name, 4), (files.PROGRESS.name, 9)):
        progress = ProgressFile(rank / name)
        progress.identify(0, 0, 1)
        progress.step(number)
    view = view_of(rank)
    assert view.progress is not None
    assert view.progress.step == step
    assert (view.ended is None) is (step == 4)


@pytest.mark.parametrize(("started", "judged"), [(6_000, True), (4_000, False)])
def test_a_capture_of_the_attempt_before_hides_nothing_of_this_one(
    rank: Path, started: int, judged: bool
) -> None:
    """A launcher starts ranks again when one has failed, which is when they were captured."""
    write(rank, files.EXCEPTIONS, [Raised(Clock(4_500, 4_500), "ValueError", "first", [])])
    case = rank.parents[3]
    again = folders.make_private(folders.rank_folder(case, "host", 0, 1))
    begun = Clock(started, started)
    write(again, files.PROCESS, RankProcess(8, 0, 1, begun, Python("3.11"), attempt=1))
    write(again, files.EXCEPTIONS, [Raised(Clock(7_000, 7_000), "ValueError", "second", [])])
    write(again, files.EXIT, Exit(Clock(8_000, 8_000), 1))
    write(again, files.PROCESSES, [ProcessSample(CAPTURED, 8, 1, "rank", "S", cpu_s=0.0)])
    facts = from_case(case)
    view = facts.ranks[0]
    assert [one.message for one in view.exceptions] == (["second"] if judged else [])
    assert (view.ended is not None) is judged
    assert [(one.attempt, one.raised.message) for one in facts.raised_before] == [(0, "first")]


@pytest.mark.parametrize("message", ["node lost", "Connection closed by peer"])
def test_an_attempt_that_fails_for_want_of_the_one_before_is_told_of_it(
    rank: Path, message: str
) -> None:
    write(rank, files.EXCEPTIONS, [Raised(Clock(4_500, 4_500), "RuntimeError", message, [])])
    case = rank.parents[3]
    again = folders.make_private(folders.rank_folder(case, "host", 0, 1))
    begun = Clock(6_000, 6_000)
    write(again, files.PROCESS, RankProcess(8, 0, 1, begun, Python("3.11"), attempt=1))
    text = "Gloo connectFullMesh failed with [/gloo/transport/tcp/pair.cc:146] Connection refused"
    write(again, files.EXCEPTIONS, [Raised(Clock(7_000, 7_000), "RuntimeError", text, [])])
    write(again, files.EXIT, Exit(Clock(8_000, 8_000), 1))
    verdict = conclude(from_case(case))
    assert (verdict.status, verdict.culprits) == (Status.INCONCLUSIVE, [])
    assert verdict.summary.startswith("The job failed at rank 0")
    told = f"attempt 0 ended by RuntimeError: {message}" in [e.detail for e in verdict.evidence]
    assert told is (message == "node lost")


def test_whom_others_ended_did_not_fail_and_data_that_does_not_fit_is_told(rank: Path) -> None:
    """A rank aborted over another size than its own; its launcher ended the other one."""
    text = (
        "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  "
        "[enforce fail at gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 2112 vs "
        "2048. Received data size doesn't match expected size. Is there a distributed collective "
        "mismatch in your code?"
    )
    (rank / files.STDERR.name).write_text(text)
    write(rank, files.EXIT, Exit(Clock(5_000, 5_000), signal=6))
    case = rank.parents[3]
    other = folders.make_private(folders.rank_folder(case, "host", 1, 0))
    write(other, files.PROCESS, RankProcess(8, 1, 2, Clock(1_000, 1_000), Python("3.11")))
    write(other, files.EXIT, Exit(Clock(6_000, 6_000), signal=15))
    summary = conclude(from_case(case)).summary
    assert summary.startswith("Rank 0 ended in an operation in which a peer's data did not fit")
    lost = "terminate called\n  what():  Connection closed by peer [127.0.0.1]:4771"
    (rank / files.STDERR.name).write_text(lost)
    assert "failed at rank 0," in conclude(from_case(case)).summary


@pytest.mark.parametrize("impossible", [2**62, -3])
@pytest.mark.parametrize("whose", ["the job's", "the rank's"])
def test_an_impossible_number_of_ranks_is_told_and_not_unfolded(
    rank: Path, whose: str, impossible: int
) -> None:
    case = rank.parents[3]
    start = Clock(1_000, 1_000)
    if whose == "the job's":
        write(case, files.JOB, JobRecord(impossible, start))
        altered, expected = case / files.JOB.name, (0, 1)
        write(rank, files.PROCESS, RankProcess(7, 0, 2, start, Python("3.11")))
    else:
        write(case, files.JOB, JobRecord(None, start))
        write(rank, files.PROCESS, RankProcess(7, 0, impossible, start, Python("3.11")))
        altered, expected = rank / files.PROCESS.name, (0,)
    evidence = from_case(case)
    assert tuple(evidence.graph.expected) == expected
    assert [unusable.file for unusable in evidence.inputs.unusable] == [str(altered)]
    assert str(impossible) in evidence.inputs.unusable[0].reason
