"""What the recorder notes of a rank's own doings: collections, updates, batches, processors."""

from __future__ import annotations

import sys
import threading
from itertools import pairwise
from pathlib import Path

from conditions import wait_for

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.progress import NotProgress, read_progress
from hanglab.recorder.rank.processor_usage import UsageSampler
from hanglab.recorder.rank.progress_file import ProgressFile


def test_looks_of_several_threads_stand_in_the_order_of_their_times(tmp_path):
    progress = ProgressFile(tmp_path / "progress.bin")
    progress.identify(0, 0, 1)
    sampler = UsageSampler(progress)
    begin = threading.Barrier(4)

    def look() -> None:
        begin.wait()
        for _ in range(200):
            sampler.look()

    switched_after = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switched_after)
    sampler.leave_in_child()  # closes the file of the kernel's
    usage = read_progress((tmp_path / "progress.bin").read_bytes()).usage
    assert len(usage) > 100
    assert all(later.cpu_ns >= earlier.cpu_ns for earlier, later in pairwise(usage))


def test_resources_of_each_rank(start_job, tmp_path):
    enough = tmp_path / "enough"
    job = start_job("resources_program.py", environment={"ENOUGH": str(enough)})

    def samples(path: Path) -> int:
        try:
            return len(read_progress(path.read_bytes()).usage)
        except NotProgress:
            return 0  # Its rank is about to write how it begins.

    def looked_at() -> bool:
        files = list(job.case.glob("hosts/*/ranks/*/progress.bin"))
        return len(files) == 2 and all(samples(file) >= 4 for file in files)

    wait_for(looked_at, "four looks at each rank's processors")
    enough.touch()
    assert [job.status(rank) for rank in (0, 1)] == [0, 0]
    first, second = (job.rank(r).read(files.PROGRESS) for r in (0, 1))

    # Only rank 1 makes garbage in cycles, three times, and the runs stand there singly.
    long = [pause for pause in second.pauses if pause.collected >= 60_000]
    assert len(long) == 3
    assert all(pause.generation == 2 and pause.wall_ns > 0 for pause in long)
    assert not [pause for pause in first.pauses if pause.collected >= 60_000]
    total = next(c for c in second.collections if c.generation == 2)
    assert total.wall_ns >= sum(pause.wall_ns for pause in long)
    assert total.longest_ns == max(p.wall_ns for p in second.pauses if p.generation == 2)
    assert second.collecting_since_ns is None

    for progress in (first, second):
        update = next(t for t in progress.section_totals if t.kind == "update")
        assert update.count == 3
        assert 0 < update.cpu_ns
        assert progress.usage[-1].cpu_ns > progress.usage[0].cpu_ns
        assert progress.usage[0].waited_ns is not None
        for earlier, later in pairwise(progress.usage):
            assert later.at_ns > earlier.at_ns
            # The kernel tells no more once the main thread has ended.
            assert later.waited_ns is None or later.waited_ns >= (earlier.waited_ns or 0)
            assert later.involuntary >= earlier.involuntary
    # Four samples of 5 + rank numbers and one of the mask each.
    assert [b.elements for b in first.batches] == [24, 24, 24]
    assert [b.elements for b in second.batches] == [28, 28, 28]
    # Rank 0 made its batches itself, rank 1 had a worker.
    assert [(f.worker, f.count) for f in first.fetches] == [(-1, 3)]
    assert [(f.worker, f.count) for f in second.fetches] == [(0, 3)]
