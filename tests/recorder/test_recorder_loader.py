"""DataLoader workers that hang or die, and waits for input."""

from __future__ import annotations

import signal

import pytest

from hanglab.recorder.case import evidence_files as files


def test_waits_for_input_are_sections(start_job):
    job = start_job("loader_program.py", environment={"WORKER": "fine"})
    assert [job.status(rank) for rank in (0, 1)] == [0, 0]
    case = job.rank(1)
    progress = case.read(files.PROGRESS)
    assert progress is not None
    (total,) = progress.section_totals
    # Eight batches, and the one call that finds the loader exhausted.
    assert (total.kind, total.count) == ("input", 9)
    assert len(progress.section_events) == 9
    assert progress.open_sections == []
    assert case.read(files.CHILDREN) == [], "workers that end with their loader are nothing to tell"
    # The workers inherited the mapping and must not have written to it.
    assert progress.pid == job.pids[1]


def test_stuck_worker_shows_in_stacks_and_open_section(start_job):
    job = start_job(
        "loader_program.py", environment={"WORKER": "stuck"}, agent=("--hang-after", "1.0")
    )
    job.agent.wait("captured")
    job.agent.finish(ended_by_recorder=True)
    case = job.rank(1)
    assert case.read(files.PROGRESS) is not None
    assert [s.section for s in case.read(files.PROGRESS).open_sections] == ["dataloader"]
    (worker,) = [s for s in case.read(files.STACKS) if s.kind == "worker"]
    main = next(t for t in worker.threads if t.main)
    assert "misbehave" in {f.function.rpartition(".")[2] for f in main.frames}
    assert "worker" in {s.kind for s in case.read(files.PROCESSES)}


@pytest.mark.parametrize(
    ("fate", "code", "number"), [("killed", None, signal.SIGKILL), ("exit", 3, None)]
)
def test_dead_worker_is_told_and_its_exception_too(start_job, fate, code, number):
    job = start_job("loader_program.py", environment={"WORKER": fate})
    assert job.status(1) == 1 << 8, "torch itself must still notice the dead worker"
    case = job.rank(1)
    (child,) = case.read(files.CHILDREN)
    assert (child.kind, child.code, child.signal) == ("worker", code, number)
    (raised,) = case.read(files.EXCEPTIONS)
    # If the worker dies before an earlier batch was fetched, the fetch fails instead.
    assert "DataLoader worker" in raised.message or raised.type == "ConnectionResetError"
