"""Readings of a process that several parts share."""

from __future__ import annotations

import mmap
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hanglab.recorder.system import procfs
from hanglab.recorder.system.procfs import environment, soft_limits, status


def test_limits_status_and_environment_of_a_process_and_of_none() -> None:
    child = subprocess.Popen(
        ["sleep", "60"],
        env={"TMPDIR": "/a b=c", "PATH": os.environ["PATH"]},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (123, 456)),
    )
    try:
        assert soft_limits(child.pid)["Max open files"] == 123
        assert "Max file size" not in soft_limits(child.pid), "it has none"
        assert status(child.pid)["NSpid"].split()[0] == str(child.pid)
        assert int(status(child.pid)["CapEff"], 16) >= 0
        assert environment(child.pid)["TMPDIR"] == "/a b=c"
    finally:
        child.kill()
        child.wait()
    assert (soft_limits(child.pid), status(child.pid), environment(child.pid)) == ({}, {}, {})


def test_what_a_process_is_and_has_open(tmp_path: Path) -> None:
    path = tmp_path / "mapped"
    path.write_bytes(b"0" * 4096)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        assert procfs.open_file(os.getpid(), file.fileno()) == str(path)
        assert str(path) in procfs.mapped_files(os.getpid())
    assert str(path) not in procfs.mapped_files(os.getpid())
    assert procfs.owner(os.getpid()) == (os.geteuid(), os.getegid())
    assert os.path.samefile(procfs.executable(os.getpid()), sys.executable)
    assert procfs.network_namespace(os.getpid()) == os.readlink("/proc/self/ns/net")


def test_what_a_thread_has_run_grows_with_its_work() -> None:
    before = procfs.run_and_delay_ns(procfs.THIS_THREAD)
    if before is None:
        pytest.skip("this kernel does not count")
    busy = time.thread_time_ns()
    while time.thread_time_ns() < busy + 30_000_000:
        pass
    after = procfs.run_and_delay_ns(procfs.THIS_THREAD)
    assert after is not None and after[0] - before[0] >= 20_000_000


def test_a_process_that_has_gone_has_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    pid = process.pid
    assert procfs.owner(pid) is procfs.run_and_delay_ns(pid) is None
    assert procfs.executable(pid) == procfs.network_namespace(pid) == procfs.open_file(pid, 0) == ""
    assert procfs.mapped_files(pid) == set()
