"""What launchers say, and how soon, when something below them breaks."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from conditions import wait_for
from launcher_support import PROGRAMS, all_exits, exists, make_plan

from hanglab.harness.launchers import protocol
from hanglab.harness.launchers.local import LocalLauncher
from hanglab.harness.launchers.protocol import (
    JobPlan,
    LaunchError,
    RemainsLeft,
    SupervisorLost,
    SupervisorSilent,
)
from hanglab.harness.launchers.supervision import client, descendants, leftovers
from hanglab.harness.launchers.supervision import job as supervised
from hanglab.harness.launchers.supervision.channel import MessageChannel
from hanglab.harness.launchers.supervision.client import RootSupervisorFailed
from hanglab.harness.launchers.supervision.command_launcher import CommandLauncher
from hanglab.harness.launchers.supervision.job import SupervisedJob
from hanglab.harness.launchers.torchrun import TorchrunLauncher


@pytest.fixture(scope="module")
def local() -> Iterator[LocalLauncher]:
    """One for all tests: it gets over whatever they do to the processes below it."""
    launcher = LocalLauncher()
    try:
        yield launcher
    finally:
        launcher.close()


@pytest.fixture
def waiting(tmp_path: Path) -> JobPlan:
    """A plan whose ranks wait for ever."""
    script = tmp_path / "waiting.py"
    script.write_text("import signal\nprint('waiting')\nwhile True: signal.pause()\n")
    return make_plan(tmp_path / "run", "", script=script)


@pytest.mark.slow
def test_a_killed_supervisor_is_reported_and_takes_its_ranks_along(
    local: LocalLauncher, waiting: JobPlan
) -> None:
    job = local.start(waiting)
    ranks = list(job.pids.values())
    assert len(ranks) == 2
    psutil.Process(ranks[0]).parent().kill()
    with pytest.raises(SupervisorLost):
        while True:
            assert job.events(280) == []
    assert not job.alive()
    assert not any(exists(pid) for pid in ranks)
    assert not job.runtime_dir.exists()
    job.end()
    job.end()


def test_ranks_of_another_job_survive_a_killed_supervisor(
    local: LocalLauncher, waiting: JobPlan, tmp_path: Path
) -> None:
    first = local.start(waiting)
    second = local.start(make_plan(tmp_path / "second", "", script=waiting.script))
    psutil.Process(first.pids[0]).parent().kill()
    with pytest.raises(SupervisorLost):
        first.events(280)
    assert all(exists(pid) for pid in second.pids.values())
    assert second.alive()
    second.end()
    assert not any(exists(pid) for pid in second.pids.values())


@pytest.mark.slow
def test_a_dead_root_is_replaced_and_its_jobs_go_on(
    local: LocalLauncher, waiting: JobPlan, tmp_path: Path
) -> None:
    job = local.start(waiting)
    supervisor = psutil.Process(job.pids[0]).parent()
    supervisor.parent().kill()
    wait_for(lambda: supervisor.ppid() not in (os.getpid(), 0) and supervisor.is_running())
    other = local.start(make_plan(tmp_path / "other", "", script=waiting.script))
    os.kill(job.pids[1], signal.SIGKILL)
    (exit,) = job.events(280)
    assert (exit.rank, exit.code, exit.signal) == (1, None, signal.SIGKILL)
    for one in (job, other):
        one.end()
        assert not any(exists(pid) for pid in one.pids.values())
        assert not one.runtime_dir.exists()


@pytest.mark.slow
def test_a_stopped_root_is_noticed_and_replaced(
    local: LocalLauncher, waiting: JobPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = local.start(waiting)
    root = psutil.Process(job.pids[0]).parent().parent()
    root.suspend()
    monkeypatch.setattr(supervised, "_START_S", 0.5)
    with pytest.raises(SupervisorSilent):
        local.start(make_plan(tmp_path / "other", "", script=waiting.script))
    assert not exists(root.pid)
    monkeypatch.undo()
    again = local.start(make_plan(tmp_path / "again", "", script=waiting.script))
    for one in (job, again):
        one.end()
        assert not any(exists(pid) for pid in one.pids.values())


def test_a_stopped_supervisor_is_ended_all_the_same(
    local: LocalLauncher, waiting: JobPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised, "_END_S", 0.5)
    job = local.start(waiting)
    ranks = list(job.pids.values())
    psutil.Process(ranks[0]).parent().suspend()
    job.end()
    assert not any(exists(pid) for pid in ranks)
    assert not job.runtime_dir.exists()


def test_a_job_past_its_deadline_is_ended_without_hanglab(
    local: LocalLauncher, waiting: JobPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "GRACE_S", 0.0)
    plan = make_plan(tmp_path / "short", "", script=waiting.script, deadline_s=0.5)
    job = local.start(plan)
    ranks = list(job.pids.values())
    wait_for(lambda: not any(exists(pid) for pid in ranks))
    with pytest.raises(LaunchError, match="deadline"):
        job.events(280)
    job.end()


def test_a_forked_copy_of_hanglab_keeps_nothing_alive(
    local: LocalLauncher, waiting: JobPlan
) -> None:
    job = local.start(waiting)
    copy = os.fork()
    if copy == 0:
        try:
            signal.pause()
        finally:
            os._exit(0)
    try:
        begun = time.monotonic()
        local.close()
        assert time.monotonic() - begun < 20
        assert not any(exists(pid) for pid in job.pids.values())
        job.end()
    finally:
        os.kill(copy, signal.SIGKILL)
        os.waitpid(copy, 0)


@pytest.mark.slow
def test_no_rank_notices_the_end_of_another(local: LocalLauncher, tmp_path: Path) -> None:
    script = tmp_path / "stuck.py"
    script.write_text(
        "import signal, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "dist.all_reduce(torch.ones(1))\n"
        "print('up', flush=True)\n"
        "if dist.get_rank() == 0: signal.pause()\n"
        "dist.all_reduce(torch.ones(1))\n"
    )
    plan = make_plan(tmp_path / "run", "", script=script, world_size=4)
    job = local.start(plan)
    try:
        outputs = [plan.log_dir / f"rank{rank}.out" for rank in range(4)]
        wait_for(lambda: all(o.exists() and o.read_text() == "up\n" for o in outputs))
    finally:
        job.end()
    assert "".join((plan.log_dir / f"rank{rank}.err").read_text() for rank in range(4)) == ""


def test_a_warm_process_that_does_not_come_up_says_why(waiting: JobPlan) -> None:
    class Broken(LocalLauncher):
        def command(self) -> list[str]:
            return [sys.executable, "-c", "raise SystemExit('no torch here')"]

    launcher = Broken()
    try:
        with pytest.raises(RootSupervisorFailed, match="no torch here"):
            launcher.start(waiting)
    finally:
        launcher.close()


def test_a_warm_process_that_never_comes_up_is_given_up(
    waiting: JobPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stuck(LocalLauncher):
        def command(self) -> list[str]:
            return [sys.executable, "-c", "import signal; signal.pause()"]

    monkeypatch.setattr(client, "_READY_S", 0.3)
    launcher = Stuck()
    try:
        with pytest.raises(RootSupervisorFailed, match=r"not ready after 0 s"):
            launcher.start(waiting)
    finally:
        launcher.close()


def test_a_torchrun_that_starts_no_ranks_says_why(waiting: JobPlan) -> None:
    class Broken(TorchrunLauncher):
        def start_command(
            self, plan: JobPlan, environment: dict[str, str], program: list[str]
        ) -> list[str]:
            return [sys.executable, "-c", "raise SystemExit('no rendezvous')"]

    launcher = Broken()
    try:
        job = launcher.start(waiting)
        with pytest.raises(LaunchError, match=r"(?s)code 1 before .* ranks\nno rendezvous"):
            job.events(280)
        assert not job.alive()
        job.end()
    finally:
        launcher.close()


class SessionsLauncher(CommandLauncher):
    """As somebody adds one: a class with a command, and nothing else."""

    name = "sessions"

    def start_command(
        self, plan: JobPlan, environment: dict[str, str], program: list[str]
    ) -> list[str]:
        starter = PROGRAMS / "sessions_program.py"
        logs = plan.log_dir.absolute() / "sessions"
        return [sys.executable, str(starter), str(plan.world_size), str(logs), *program]


@pytest.mark.slow
@pytest.mark.parametrize("made", [TorchrunLauncher, SessionsLauncher])
@pytest.mark.parametrize(
    ("way", "code", "number"), [("exit-3", 3, None), ("kill", None, signal.SIGKILL)]
)
def test_the_end_of_a_rank_below_a_command_is_reported(
    tmp_path: Path,
    made: type[CommandLauncher],
    way: str,
    code: int | None,
    number: int | None,
) -> None:
    launcher = made()
    plan = make_plan(tmp_path / "run", "endings_program.py", way, tmp_path / "trace")
    try:
        job = launcher.start(plan)
        begun = time.monotonic()
        exits = all_exits(job)
        assert (exits[0].code, exits[0].signal) == (code, number), time.monotonic() - begun
        assert (exits[1].code, exits[1].signal) == (0, None)
        assert set(job.pids) == {0, 1}
        assert (plan.log_dir / "rank0.out").read_text() == "on its way\n"
        job.end()
    finally:
        launcher.close()


def test_processes_that_do_not_end_are_named(tmp_path: Path) -> None:
    near, far = socket.socketpair()
    job = SupervisedJob(make_plan(tmp_path, ""), tmp_path / "none", MessageChannel(near))
    peer = MessageChannel(far)
    peer.send({"event": "ended", "left": [4194305]})
    peer.close()
    with pytest.raises(RemainsLeft, match="4194305"):
        job.end()
    job.end()


def test_children_are_found_where_the_kernel_does_not_list_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        listed = descendants.children_of(os.getpid())
        monkeypatch.setattr(descendants, "_kernel_lists_children", lambda: False)
        assert child.pid in listed
        assert sorted(listed) == descendants.children_of(os.getpid())
    finally:
        child.kill()
        child.wait()


def test_a_segment_that_others_use_stays() -> None:
    name = Path(f"/dev/shm/psm_hanglab_test_{os.getpid()}")
    try:
        with open(name, "wb"):
            leftovers.remove_shared_memory([name], set())
            assert name.exists()
        leftovers.remove_shared_memory([name], set())
        assert not name.exists()
    finally:
        name.unlink(missing_ok=True)
