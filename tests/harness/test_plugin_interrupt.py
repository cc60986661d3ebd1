"""Ctrl-C, a worker that crashes, a plugin that breaks: clear words, and nothing left running."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from conditions import wait_for
from launcher_support import exists
from plugin_support import SOUND, pytest_over, write

ENDLESS = """
import os
@scenario(world_size=2, expect=Expect(Cause.SKIPPED_COLLECTIVE, culprits={{1}}))
def {name}(job):
    with open(f"{{os.environ['PIDS']}}/{name}-{{job.rank}}", "w") as file:
        file.write(str(os.getpid()))
    for step in job.steps(100_000):
        time.sleep(0.01)
        dist.all_reduce(torch.ones(4))  # FAULT
"""


def below(process: subprocess.Popen[str]) -> list[int]:
    return [child.pid for child in psutil.Process(process.pid).children(recursive=True)]


def ranks_run(folder: Path, count: int) -> Callable[[], bool]:
    """Whether so many ranks have written their process ids."""
    return lambda: len([p for p in (folder / "pids").iterdir() if p.read_text()]) >= count


def gone(pids: list[int]) -> Callable[[], bool]:
    return lambda: not any(exists(pid) for pid in pids)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["one process", "two workers"])
def test_ctrl_c_ends_everything(tmp_path: Path, workers: list[str]) -> None:
    write(tmp_path, "hanglab_a.py", ENDLESS.format(name="a"))
    write(tmp_path, "hanglab_b.py", ENDLESS.format(name="b"))
    with pytest_over(tmp_path, *workers, "-k", "fault") as process:
        jobs = 2 if workers else 1
        wait_for(ranks_run(tmp_path, 2 * jobs), "ranks of all jobs")
        pids = [int(path.read_text()) for path in (tmp_path / "pids").iterdir()]
        pids += below(process)
        os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=280)
        assert process.returncode == 2, out
        assert "KeyboardInterrupt" in out
        wait_for(gone(pids), "the end of all processes")
    assert not list((tmp_path / ".leases/hanglab/leases").glob("*.ticket"))
    if not workers:
        # The job was captured and ended in order.
        (truth,) = tmp_path.glob("runs/latest/a/fault/0/truth.json")
        assert '"interrupted"' in truth.read_text()
        # So was said what it waits for; and what it had done is told as after any other run.
        assert re.search(r"^hanglab: a .*: interrupted; it is captured and ended first", out, re.M)
        assert "1 harness error" in out and "artifacts: " in out
        content = json.loads((tmp_path / "runs/latest/results.json").read_text())
        assert content["interrupted"] is True
        (job,) = content["results"]
        assert (job["scenario"], job["reason"]) == ("a", "interrupted")
        assert "interrupted" in (tmp_path / "runs/latest/summary.md").read_text()


@pytest.mark.slow
def test_a_crashed_worker_frees_its_leases_and_its_job(tmp_path: Path) -> None:
    """The item that it ran is reported, the others run on."""
    write(tmp_path, "hanglab_a.py", ENDLESS.format(name="a"))
    write(tmp_path, "hanglab_b.py", SOUND.format(name="b"))
    with pytest_over(tmp_path, "-n", "1", "-k", "fault", "-v") as process:
        wait_for(ranks_run(tmp_path, 2), "both ranks")
        pids = [int(path.read_text()) for path in (tmp_path / "pids").iterdir()]
        rank = psutil.Process(pids[0])
        root = rank.parent()
        assert root is not None
        (worker,) = [
            child
            for child in psutil.Process(process.pid).children()
            if child.pid in [parent.pid for parent in rank.parents()]
        ]
        worker.kill()
        out, _ = process.communicate(timeout=280)
        assert re.search(r"worker 'gw0' crashed while running .*a\[fault", out), out
        assert "1 failed, 1 passed" in out
        wait_for(gone(pids), "the end of the crashed worker's job")


@pytest.mark.slow
def test_a_conftest_that_breaks_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    write(tmp_path, "hanglab_a.py", SOUND.format(name="a"))
    (tmp_path / "conftest.py").write_text(
        "import psutil\n"
        "def pytest_runtest_logreport(report):\n"
        "    if report.when == 'call':\n"
        "        pids = [p.pid for p in psutil.Process().children(recursive=True)]\n"
        "        open('below', 'w').write(' '.join(map(str, pids)))\n"
        "        raise RuntimeError('a hook of the user breaks')\n"
    )
    with pytest_over(tmp_path) as process:
        out, _ = process.communicate(timeout=280)
        assert process.returncode == 3
        assert "RuntimeError: a hook of the user breaks" in out
    pids = [int(word) for word in (tmp_path / "below").read_text().split()]
    assert pids
    wait_for(gone(pids), "the end of the warm process")


def test_a_killed_pytest_leaves_nothing(tmp_path: Path) -> None:
    write(tmp_path, "hanglab_a.py", ENDLESS.format(name="a"))
    with pytest_over(tmp_path, "-k", "fault") as process:
        wait_for(ranks_run(tmp_path, 2), "both ranks")
        pids = below(process)
        assert len(pids) >= 4
        process.kill()
        wait_for(gone(pids), "the end of all processes")
