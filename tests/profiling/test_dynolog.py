"""``hanglab profile`` against a stand-in that answers as a dynolog daemon does.

The daemon itself is no part of these tests; played_dynolog.py says what its bytes follow.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from played_dynolog import dynolog
from played_kineto import played

from hanglab.recorder.profiling import client
from hanglab.recorder.profiling.client import Endpoint
from hanglab.recorder.profiling.configuration import values_of
from hanglab.recorder.profiling.service import ProfilingService


def profile(notes: Path, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(notes)}
    if path:
        environment["PATH"] = f"{path}:{environment['PATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "hanglab.harness.cli", "profile", *words],
        capture_output=True,
        text=True,
        timeout=280,
        env=environment,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_daemon_and_agent_are_told_apart(service: ProfilingService, endpoint: Endpoint) -> None:
    with dynolog() as daemon:
        assert client.is_dynolog(Endpoint("127.0.0.1", daemon.port))
    assert not client.is_dynolog(endpoint)


def test_files_that_appear_here_are_read_and_have_receipts(tmp_path: Path) -> None:
    with dynolog(71, 72, job_id=5, writing=(71, 72)) as daemon:
        done = profile(
            tmp_path,
            *("--host", f"127.0.0.1:{daemon.port}", "--job", "5", "--duration-ms", "200"),
            *("--stacks", "--out", str(tmp_path / "out"), "--json"),
        )
    assert done.returncode == 0, done.stdout + done.stderr
    receipts = json.loads(done.stdout)["receipts"]
    assert [(r["pid"], r["state"], r["events"]) for r in receipts] == [
        (71, "valid", 1),
        (72, "valid", 1),
    ]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [r["file"] for r in receipts]
    (request,) = daemon.requests
    assert (request["job_id"], request["pids"]) == (5, [])
    values = values_of(request["config"])
    assert values["ACTIVITIES_DURATION_MSECS"] == "200"
    assert values["ACTIVITIES_WARMUP_PERIOD_SECS"] == "0"
    assert values["PROFILE_WITH_STACK"] == "true"
    # Without it two processes would begin whenever each of them has heard of it.
    assert int(values["PROFILE_START_TIME"]) > 0


@pytest.mark.slow
def test_what_a_daemon_cannot_tell_is_said(tmp_path: Path) -> None:
    with dynolog(71, 72, 73, writing=(71,)) as daemon:
        daemon.busy.add(73)
        done = profile(
            tmp_path,
            *("--host", f"127.0.0.1:{daemon.port}", "--iterations", "3", "--timeout", "1"),
            *("--out", str(tmp_path / "out"), "--json"),
        )
        nobody = profile(
            tmp_path, "--host", f"127.0.0.1:{daemon.port}", "--pid", "9", "--out", f"{tmp_path}/a"
        )
    assert done.returncode == 1
    first, silent, busy = json.loads(done.stdout)["receipts"]
    assert first["state"] == "valid"
    assert "has not come to this host" in silent["reason"]
    assert "busy" in busy["reason"]
    # Processes that hear of it one after another must find the same iteration.
    values = values_of(daemon.requests[0]["config"])
    assert int(values["PROFILE_START_ITERATION_ROUNDUP"]) > 1
    assert nobody.returncode == 1
    assert "knows no process" in nobody.stdout


@pytest.mark.slow
def test_daemon_and_agent_are_asked_together(
    service: ProfilingService, endpoint: Endpoint, sockets: Path, tmp_path: Path
) -> None:
    with dynolog(71, writing=(71,)) as daemon, played(sockets, os.getpid()) as (process,):
        process.ask()
        done = profile(
            tmp_path,
            *("--host", f"127.0.0.1:{daemon.port},127.0.0.1:{service.port}", "--timeout", "1"),
            *("--out", str(tmp_path / "out"), "--json"),
        )
        # The played process does not ask again, so its receipt says that; the other's is whole.
    states = {r["pid"]: (r["state"], r["reason"]) for r in json.loads(done.stdout)["receipts"]}
    assert states[71] == ("valid", "")
    assert "did not ask for work" in states[os.getpid()][1]
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--ranks", "0"], 64, "knows no ranks"),
        (["--start-in", "2"], 64, "earliest common start"),
        (["--job", "mine"], 4, "squeue cannot be asked"),
        (["--duration-ms", "999999999"], 64, "duration"),
    ],
)
def test_what_dynolog_has_no_words_for(
    tmp_path: Path, words: list[str], code: int, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Some machines have squeue.
    monkeypatch.setenv("PATH", str(tmp_path))
    with dynolog(71) as daemon:
        out = str(tmp_path / "out")
        done = profile(tmp_path, "--host", f"127.0.0.1:{daemon.port}", "--out", out, *words)
    assert (done.returncode, daemon.requests) == (code, [])
    assert text in done.stderr


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with dynolog(71) as daemon:
        for out, code in (("file", 64), ("file/below", 4)):
            done = profile(
                tmp_path, "--host", f"127.0.0.1:{daemon.port}", "--out", f"{tmp_path}/{out}"
            )
            assert done.returncode == code
            assert "Choose another" in done.stderr
    assert daemon.requests == []
