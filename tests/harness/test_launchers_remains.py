"""Nothing outlives a run, however hanglab and its helpers end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from conditions import wait_for
from launcher_support import PROGRAMS, exists, listening, segments_left

from hanglab.harness.launchers.selection import LAUNCHERS

#: Those whose ranks are processes of this machine; `containers` and `slurm` test the others.
HERE = [name for name, spec in LAUNCHERS.items() if not spec.spread]
#: Each signal and each launcher; the other pairs take half a minute each on a small machine.
_EACH_ONCE = {
    (signal.SIGINT, "torchrun"),
    (signal.SIGTERM, "local"),
    (signal.SIGKILL, "torchrun"),
}


@dataclass
class Run:
    """A process that plays hanglab, with a job that is up, and all that belongs to it."""

    driver: subprocess.Popen[str]
    temporary: Path
    announced: list[dict[str, Any]]
    pids: set[int]

    def ports(self) -> list[int]:
        """Those of the job on which somebody of it listens."""
        announced = [one["port"] for one in self.announced]
        return [port for port in announced if listening(port, self.temporary)]

    def remains(self) -> dict[str, object]:
        found = {
            "processes": sorted(pid for pid in self.pids if exists(pid)),
            "segments": segments_left(n for one in self.announced for n in one["segments"]),
            "files": sorted(os.listdir(self.temporary)),
            "sockets": self.ports(),
        }
        return {kind: what for kind, what in found.items() if what}

    def assert_nothing_remains(self) -> None:
        wait_for(lambda: not self.remains(), "no remains")


def below(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    temporary = Path(tempfile.mkdtemp())
    ready = tmp_path / "ready"
    ready.mkdir()
    runs: list[Run] = []

    def start(launcher: str, then: str, up: Any = None) -> Run:
        driver = subprocess.Popen(
            [sys.executable, PROGRAMS / "driver_program.py", launcher, tmp_path, ready, then],
            env={**os.environ, "TMPDIR": str(temporary)},
            stdout=subprocess.PIPE,
            text=True,
        )
        run = Run(driver, temporary, [], {driver.pid})
        runs.append(run)

        def is_up() -> bool:
            if then == "wait":
                assert driver.poll() is None, _logs(tmp_path / "log")
                run.pids.update(process.pid for process in below(driver.pid))
            return up(run) if up else len(list(ready.glob("*.json"))) == 2

        wait_for(is_up, "the job is up")
        run.announced += [json.loads(path.read_text()) for path in sorted(ready.glob("*.json"))]
        if then == "wait":
            run.pids.update(process.pid for process in below(driver.pid))
            assert bool(run.ports()) == bool(run.announced)
        for one in run.announced:
            assert one["sum"] == 2.0
            assert any(name.startswith("torch_") for name in one["segments"])
            run.pids.update(one["pids"])
        return run

    try:
        yield start
    finally:
        for run in runs:
            for pid in run.pids:
                if exists(pid):
                    os.kill(pid, signal.SIGKILL)
            run.driver.wait()
            for name in segments_left(n for one in run.announced for n in one["segments"]):
                os.unlink(f"/dev/shm/{name}")
        shutil.rmtree(temporary, ignore_errors=True)


def _logs(folder: Path) -> str:
    return "\n".join(path.read_text() for path in sorted(folder.glob("*.err")))


@pytest.mark.slow
@pytest.mark.parametrize("launcher", HERE)
def test_nothing_remains_after_a_normal_end(start: Any, launcher: str) -> None:
    run = start(launcher, "end")
    output, _ = run.driver.communicate(timeout=280)
    assert sorted(output.splitlines()) == ["0 0 None", "1 0 None", "closed"]
    assert run.remains() == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "launcher"),
    [
        pytest.param(
            number, launcher, marks=() if (number, launcher) in _EACH_ONCE else pytest.mark.long
        )
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
        for launcher in HERE
    ],
)
def test_nothing_remains_when_hanglab_is_ended(
    start: Any, launcher: str, number: signal.Signals
) -> None:
    run = start(launcher, "wait")
    run.driver.send_signal(number)
    run.driver.wait(280)
    run.assert_nothing_remains()


@pytest.mark.long
@pytest.mark.parametrize("launcher", HERE)
@pytest.mark.parametrize(
    "up",
    [
        pytest.param(lambda run: len(run.pids) > 1, id="root supervisor starts"),
        pytest.param(lambda run: os.listdir(run.temporary), id="supervisor starts"),
        pytest.param(lambda run: len(run.pids) > 3, id="ranks start"),
    ],
)
def test_nothing_remains_when_hanglab_is_killed_early(start: Any, launcher: str, up: Any) -> None:
    run = start(launcher, "wait", up)
    run.driver.kill()
    run.driver.wait(280)
    run.assert_nothing_remains()


@pytest.mark.long
@pytest.mark.parametrize("launcher", HERE)
def test_nothing_remains_when_the_supervisor_is_killed(start: Any, launcher: str) -> None:
    run = start(launcher, "wait")
    (root,) = psutil.Process(run.driver.pid).children()
    (supervisor,) = root.children()
    supervisor.kill()
    # The driver does not catch the error about it, so that it ends as well.
    assert run.driver.wait(280) != 0
    run.assert_nothing_remains()


@pytest.mark.long
@pytest.mark.parametrize("launcher", HERE)
def test_nothing_remains_when_the_root_is_killed_and_then_hanglab(
    start: Any, launcher: str
) -> None:
    run = start(launcher, "wait")
    (root,) = psutil.Process(run.driver.pid).children()
    root.kill()
    wait_for(lambda: not exists(root.pid))
    assert all(exists(one["pids"][0]) for one in run.announced), "the job goes on without it"
    run.driver.kill()
    run.driver.wait(280)
    run.assert_nothing_remains()
