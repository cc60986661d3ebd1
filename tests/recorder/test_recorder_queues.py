"""Queues of a data loader, as a rank that hangs or was killed leaves them."""

from __future__ import annotations

import signal

import pytest
from conditions import wait_for

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case import folders


@pytest.mark.slow
def test_a_stuck_worker_leaves_batches_asked_for_and_none_ready(start_job):
    job = start_job(
        "loader_program.py", environment={"WORKER": "stuck"}, agent=("--hang-after", "1.0")
    )
    job.agent.wait("captured")
    job.agent.finish(ended_by_recorder=True)
    progress = job.rank(1).read(files.PROGRESS)
    assert progress is not None
    (loader,) = progress.loaders
    # Batches of four: the worker sleeps over the fourth, and has made three.
    assert (loader.workers, loader.delivered, loader.ready) == (1, 3, 0)
    assert loader.outstanding == 2 and loader.indices == 1
    assert not loader.ended
    assert loader.delivered_ns is not None and loader.looked_ns is not None
    assert loader.looked_ns - loader.delivered_ns > 0.8e9
    assert loader.pids == [s.pid for s in job.rank(1).read(files.STACKS) if s.kind == "worker"][:1]


def test_the_queues_outlive_a_rank_that_was_killed(start_job):
    job = start_job("loader_program.py", environment={"WORKER": "stuck"})

    def stuck():
        ranks = job.read().ranks if (job.case / folders.HOSTS).is_dir() else []
        loaders = [
            one
            for r in ranks
            if r.rank == 1 and r.read(files.PROGRESS)
            for one in r.read(files.PROGRESS).loaders
        ]
        return loaders and loaders[0].delivered == 3 and loaders[0].ready == 0

    wait_for(stuck, "the worker to be stuck")
    job.kill(1, signal.SIGKILL)
    assert job.status(1) == signal.SIGKILL
    progress = job.rank(1).read(files.PROGRESS)
    assert progress is not None
    assert [(one.delivered, one.outstanding) for one in progress.loaders] == [(3, 2)]


def test_a_loader_at_its_end_is_told_so(start_job):
    job = start_job("loader_program.py", environment={"WORKER": "fine"})
    assert [job.status(rank) for rank in (0, 1)] == [0, 0]
    progress = job.rank(1).read(files.PROGRESS)
    assert progress is not None
    assert [(one.delivered, one.outstanding, one.ended) for one in progress.loaders] == [
        (8, 0, True)
    ]
