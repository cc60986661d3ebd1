"""``hanglab profile`` in trouble: Ctrl-C, and folders that cannot take what it brings."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conditions import wait_for
from played_kineto import Played, played, write_trace

from hanglab.harness.cli import main
from hanglab.recorder.profiling import client, multi_host_request
from hanglab.recorder.profiling.client import Endpoint, HostStatus
from hanglab.recorder.profiling.multi_host_request import RequestPlan
from hanglab.recorder.profiling.service import ProfilingService

HANGLAB = [sys.executable, "-m", "hanglab.harness.cli", "profile"]


def _may_mount() -> bool:
    with contextlib.suppress(OSError):
        done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
        return done.returncode == 0
    return False


def command(endpoint: Endpoint, out: Path, *before: str) -> list[str]:
    return [*before, *HANGLAB, "--host", str(endpoint), "--duration-ms", "50", "--out", str(out)]


def test_interrupted_command_takes_back_what_no_process_has(
    service: ProfilingService, endpoint: Endpoint, sockets: Path, tmp_path: Path
) -> None:
    with played(sockets, os.getpid()) as (process,):
        process.ask()
        asking = subprocess.Popen(
            command(endpoint, tmp_path / "out"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        )
        try:
            wait_for(lambda: service.orders.busy)
            asking.send_signal(signal.SIGINT)
            _, errors = asking.communicate(timeout=280)
        finally:
            asking.kill()
            asking.wait()
        assert asking.returncode == 130
        assert "Traceback" not in errors
        assert process.ask() == ""
        assert not service.orders.busy
    assert not (tmp_path / "out").exists()


def test_an_interruption_just_after_the_hosts_were_asked_withdraws_it(
    service: ProfilingService,
    endpoint: Endpoint,
    sockets: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = multi_host_request.place

    def place_and_be_interrupted(plan: RequestPlan) -> None:
        place(plan)
        assert service.orders.busy
        raise KeyboardInterrupt

    monkeypatch.setattr(multi_host_request, "place", place_and_be_interrupted)
    with played(sockets, os.getpid()) as (process,):
        process.ask()
        assert main(command(endpoint, tmp_path / "out")[len(HANGLAB) - 1 :]) == 130
        assert process.ask() == ""
        assert not service.orders.busy
    assert "1 requests that no process had got yet are withdrawn" in capsys.readouterr().err


def test_an_interruption_before_any_host_was_asked_speaks_of_no_requests(
    service: ProfilingService,
    endpoint: Endpoint,
    sockets: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def be_interrupted(*looked_at: object) -> HostStatus:
        raise KeyboardInterrupt

    monkeypatch.setattr(client, "status", be_interrupted)
    with played(sockets, os.getpid()) as (process,):
        process.ask()
        assert main(command(endpoint, tmp_path / "out")[len(HANGLAB) - 1 :]) == 130
        assert not service.orders.busy
    assert "withdrawn" not in capsys.readouterr().err


def ask_with_trace(
    words: list[str], process: Played, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """The command's end; the process traces at once whatever it is asked for."""
    ended = threading.Event()

    def trace() -> None:
        while not ended.is_set():
            text = process.ask()
            if text:
                write_trace(text, process.pid)
                return
            time.sleep(0.05)

    tracing = threading.Thread(target=trace)
    tracing.start()
    try:
        return subprocess.run(
            words, capture_output=True, text=True, timeout=280, check=False, env=environment
        )
    finally:
        ended.set()
        tracing.join()


@pytest.mark.skipif(not _may_mount(), reason="a mount of its own needs root: run as root")
@pytest.mark.usefixtures("service")
def test_full_folder_is_told_and_nothing_half_is_left(
    endpoint: Endpoint, sockets: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    # One page is the folder's own, and the rest is taken before the trace comes.
    fill = f"mount -t tmpfs -o size=8k none {out} && cat /dev/zero > {out}/full 2>/dev/null; "
    after = f'"$@"; code=$?; ls -R {out} >&2; exit $code'
    before = ["unshare", "--mount", "sh", "-c", fill + after, "sh"]
    with played(sockets, os.getpid()) as (process,):
        process.ask()
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
        done = ask_with_trace(command(endpoint, out, *before), process, environment)
    assert done.returncode != 0, done.stdout
    # The table folds its lines.
    assert "No space left on device" in " ".join(done.stdout.split())
    assert "Traceback" not in done.stderr
    assert done.stderr.count(".json") == 0, "half a trace is left"


@pytest.mark.usefixtures("service")
def test_folder_that_is_a_file_is_told_before_anybody_is_asked(
    endpoint: Endpoint, sockets: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.write_text("in the way")
    with played(sockets, os.getpid()) as (process,):
        process.ask()
        done = subprocess.run(
            command(endpoint, out),
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
            env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        )
        assert process.ask() == ""
    assert done.returncode == 64
    assert "is no folder that can be written" in done.stderr
