"""A recorder, working or failing, never changes or stops the job."""

from __future__ import annotations

import pytest

from hanglab.recorder.case import evidence_files as files


def outputs(job) -> list[str]:
    assert [job.status(rank) for rank in (0, 1)] == [0, 0]
    return [job.printed(rank) for rank in (0, 1)]


@pytest.mark.slow
def test_losses_and_weights_are_the_same_bit_for_bit(start_job):
    plain = outputs(start_job("seeded_program.py", record=False))
    recorded = outputs(start_job("seeded_program.py", agent=("--hang-after", "30")))
    assert plain == recorded
    assert plain[0].count("\n") == 9


def test_what_is_wrapped_or_looked_at_is_as_it_was_for_everybody_else(start_job):
    plain = outputs(start_job("wrapped_program.py", record=False))
    recorded = start_job("wrapped_program.py")
    assert outputs(recorded) == plain
    assert not [line for line in plain[0].splitlines() if line.endswith("False")]
    assert [batch.elements for batch in recorded.rank(0).read(files.PROGRESS).batches] == [0, 5, 5]


def test_unwritable_case_folder(start_job, tmp_path):
    obstacle = tmp_path / "file"
    obstacle.touch()
    job = start_job("seeded_program.py", environment={"HANGLAB_CASE": str(obstacle), "SHOW": "1"})
    assert all("unrecorded" in text for text in outputs(job))
    assert list(job.runtime.glob("not-recorded-*.txt")), "the reason is left behind"


@pytest.mark.slow
def test_no_space_for_the_progress_file(start_job):
    # A file-size limit refuses the allocation as a full disk does.
    job = start_job(
        "seeded_program.py", environment={"FILE_LIMIT": "262144"}, agent=("--hang-after", "30")
    )
    for rank, text in enumerate(outputs(job)):
        assert text.count("\n") == 9
        job.report(rank, code=0, signal=None, by_recorder=False)
    job.agent.finish()
    case = job.read()
    assert [rank.read(files.PROGRESS) for rank in case.ranks] == [None, None]
    assert all(rank.read(files.FLIGHT_RECORDER) for rank in case.ranks)


@pytest.mark.slow
def test_no_runtime_folder_and_no_agent(start_job):
    outputs(start_job("seeded_program.py", environment={"HANGLAB_RUNTIME": "/nowhere/at/all"}))


@pytest.mark.parametrize("replace", ["0", "1"])
def test_exception_hooks_are_chained(start_job, replace):
    job = start_job("hooks_program.py", 1, {"REPLACE": replace})
    assert job.status(0) == 1 << 8
    raised = job.rank(0).read(files.EXCEPTIONS)
    assert {(r.type, r.main) for r in raised} == {("ValueError", False), ("KeyError", True)}
    helper = next(r for r in raised if not r.main)
    assert (helper.thread, helper.frames[0].function) == ("helper", "fail")
    if replace == "1":
        assert "main KeyError" in job.printed(0)
    else:
        assert "KeyError" in (job.runtime / "rank0.err").read_text()


def test_what_signal_handlers_raise_reaches_the_job(start_job):
    job = start_job("alarm_program.py", 1)
    assert job.status(0) == 0, (job.runtime / "rank0.err").read_text()
    assert job.printed(0) == "lost 0\n"
    progress = job.rank(0).read(files.PROGRESS)
    assert progress is not None and progress.operations_total > 400, "it was recorded meanwhile"
