"""Readings of a process that several parts share."""

from __future__ import annotations

import os
import resource
import subprocess

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
