"""A rank that replaces its program goes on as the same rank."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.case.reader import CaseReader
from hanglab.recorder.rank import hook_dir
from hanglab.recorder.rank.progress_file import ProgressFile

PROGRAM = """
import os, sys
from hanglab import recorder
again = len(sys.argv) > 1
for number in range(2 if again else 5):
    recorder.step(number)
if not again:
    print(os.getpid(), flush=True)
    os.execv(sys.executable, [sys.executable, __file__, "again"])
print(os.getpid())
"""
READS = """
import sys
from pathlib import Path
from hanglab.recorder.agent.counters import CounterFile
counters = CounterFile(Path(sys.argv[1]))
counters.changes()
print("ready", flush=True)
while not Path(sys.argv[1], "done").exists():
    for _ in range(200):
        counters.changes()
counters.changes()  # the writer had gone on between the last look and the end
print(counters.counters.step)
"""


def test_one_rank_before_and_after(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HANGLAB_")}
    recorded = {"HANGLAB_CASE": str(tmp_path / "case"), "PYTHONPATH": str(hook_dir())}
    done = subprocess.run(
        [sys.executable, script],
        env={**kept, "RANK": "0", "WORLD_SIZE": "1", **recorded},
        capture_output=True,
        text=True,
        timeout=280,
        check=True,
    )
    before, after = done.stdout.split()
    assert before == after
    (rank,) = CaseReader(tmp_path / "case").all_attempts
    assert rank.read(files.PROGRESS) is not None and rank.read(files.PROCESS) is not None
    assert (rank.read(files.PROCESS).pid, rank.read(files.PROGRESS).pid) == (
        int(before),
        int(before),
    )
    # Nothing of the first program is left to be taken for the second one's.
    assert rank.read(files.PROGRESS).steps == [
        (step, at) for step, at in rank.read(files.PROGRESS).steps if step < 2
    ]
    assert (
        rank.read(files.PROGRESS).step,
        len(rank.read(files.PROGRESS).steps),
        rank.read(files.PROGRESS).phase,
    ) == (1, 2, "exiting")


def test_whoever_watches_survives_it(tmp_path: Path) -> None:
    progress = ProgressFile(tmp_path / "progress.bin")
    progress.identify(0, 0, 1)
    watching = subprocess.Popen(
        [sys.executable, "-c", READS, tmp_path], stdout=subprocess.PIPE, text=True
    )
    try:
        assert watching.stdout is not None
        assert watching.stdout.readline() == "ready\n"
        for number in range(400):
            progress = ProgressFile(tmp_path / "progress.bin")
            progress.identify(0, 0, 1)
            progress.step(number)
        (tmp_path / "done").touch()
        assert (watching.communicate(timeout=280)[0], watching.returncode) == ("399\n", 0)
    finally:
        watching.kill()
        watching.communicate()
