"""Containers and hosts, as network and process namespaces make them, without an image."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conditions import wait_for
from test_jobs import job, profile, registered
from test_server import make_certificate

from hanglab.recorder.profiling import client
from hanglab.recorder.profiling.client import Endpoint
from hanglab.recorder.profiling.configuration import TraceWindow
from hanglab.recorder.profiling.service import ProfilingService
from hanglab.recorder.profiling.trace_records import ProfileRequest

HANGLAB = [sys.executable, "-m", "hanglab.harness.cli"]
PLAYED = Path(__file__).parent / "programs" / "kineto_program.py"
#: As a container has: a network and processes of its own.
CONTAINER = ("unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")


def _may(*command: str) -> bool:
    with contextlib.suppress(OSError):
        return subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    return False


pytestmark = pytest.mark.skipif(
    not _may(*CONTAINER) or shutil.which("ip") is None, reason="namespaces need root and iproute2"
)


def test_job_in_a_container_is_traced_over_a_mounted_socket_folder(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    pytest.importorskip("torch", reason="profiled jobs need torch: pip install hanglab[run]")
    up = ("sh", "-c", 'ip link set lo up && exec "$@"', "sh")
    with job(sockets, "900", before=(*CONTAINER, *up), under_torchrun=True):
        registered(endpoint, sockets)
        found = {p.rank: p for p in client.status(endpoint).processes if p.is_rank}
        # Their own numbers are small; here they are known by those of this host.
        own = {rank: _inner_pid(process.pid) for rank, process in found.items()}
        assert all(own[rank] != found[rank].pid for rank in (0, 1))
        receipts = profile(endpoint, ProfileRequest(window=TraceWindow(duration_ms=100)))
    assert [(r.rank, r.state, r.reason) for r in receipts] == [(0, "valid", ""), (1, "valid", "")]
    assert [r.pid for r in receipts] == [found[rank].pid for rank in (0, 1)]


@pytest.mark.few(1)
@pytest.mark.slow
def test_job_finds_the_agent_by_its_abstract_name(
    hosts: list[str], sockets: Path, tmp_path: Path
) -> None:
    pytest.importorskip("torch", reason="profiled jobs need torch: pip install hanglab[run]")
    # Such a name belongs to a network namespace: here it is free, whatever runs on this host.
    here = hosts[1]
    environment = {"XDG_RUNTIME_DIR": str(tmp_path)}

    def ask(*words: str) -> str:
        done = subprocess.run(
            within(here, *HANGLAB, "profile", *words),
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
            env={**os.environ, **environment},
        )
        return done.stdout

    command = within(here, *HANGLAB, "agent", "--output-root", str(sockets / "traces"))
    plainly = ("ip", "netns", "exec", here, "env", "-u", "KINETO_IPC_SOCKET_DIR")
    with (
        started(command, lambda line: "listening" in line, **environment),
        job(sockets, "900", before=plainly, under_torchrun=True),
    ):
        log = sockets / "log"
        wait_for(lambda: log.read_text().count(" trains") >= 2, "training")
        wait_for(lambda: ranks(ask("--list", "--json")) == [0, 1], "registration")
        answer = json.loads(ask("--out", str(tmp_path / "out"), "--duration-ms", "1000", "--json"))
    assert [(r["rank"], r["state"], r["reason"]) for r in answer["receipts"]] == [
        (0, "valid", ""),
        (1, "valid", ""),
    ]


def ranks(listed: str) -> list[int]:
    hosts = json.loads(listed)["hosts"]
    return sorted(p["rank"] for host in hosts for p in host["processes"] if p["is_rank"])


def _inner_pid(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    match = re.search(r"^NSpid:.*\s(\d+)$", text, re.MULTILINE)
    assert match is not None
    return int(match.group(1))


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Three network namespaces with addresses 10.213.0.1 to 3 on one bridge."""
    stem = f"hl{os.getpid()}"
    names = [f"{stem}{letter}" for letter in "abc"]

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        first, *others = names
        ip("-n", first, "link", "add", "br0", "type", "bridge")
        ip("-n", first, "addr", "add", "10.213.0.1/24", "dev", "br0")
        ip("-n", first, "link", "set", "br0", "up")
        for number, name in enumerate(others, 2):
            cable = ("link", "add", f"v{number}", "type", "veth", "peer", "eth0", "netns", name)
            ip("-n", first, *cable)
            ip("-n", first, "link", "set", f"v{number}", "master", "br0", "up")
            ip("-n", name, "addr", "add", f"10.213.0.{number}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def within(host: str, *words: str) -> list[str]:
    return ["ip", "netns", "exec", host, *words]


@contextlib.contextmanager
def started(command: list[str], ready: Callable[[str], bool], **more: str) -> Iterator[str]:
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
        env={**os.environ, **more},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert ready(line), line
        yield line
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.few(1)
@pytest.mark.slow
def test_agents_of_two_hosts_behind_token_and_tls(
    hosts: list[str], sockets: Path, tmp_path: Path
) -> None:
    key, certificate = make_certificate(tmp_path)
    token = tmp_path / "token"
    token.write_text(secrets.token_hex())
    other = tmp_path / "other"
    other.write_text(secrets.token_hex())
    hostfile = tmp_path / "hosts"
    hostfile.write_text(
        "10.213.0.2 slots=8\n10.213.0.3 # the second\n10.213.0.9:1778\n10.213.0.2\n"
    )
    tls = ["--tls-certificate", str(certificate), "--tls-key", str(key)]

    def ask(
        *words: str, file: Path = token, trust: bool = True
    ) -> subprocess.CompletedProcess[str]:
        endpoints = ["--hostfile", str(hostfile), "--token-file", str(file)]
        endpoints += ["--tls-ca", str(certificate)] if trust else []
        return subprocess.run(
            within(hosts[0], *HANGLAB, "profile", *endpoints, *words),
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
            env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        )

    naked = subprocess.run(
        within(hosts[1], *HANGLAB, "agent", "--listen", "10.213.0.2"),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert naked.returncode == 64
    assert "token" in naked.stderr

    with contextlib.ExitStack() as stack:
        for number, host in enumerate(hosts[1:], 2):
            folder = sockets / str(number)
            notes = tmp_path / str(number)
            notes.mkdir()
            words = ["--listen", f"10.213.0.{number}", "--socket-dir", str(folder), *tls]
            command = within(host, *HANGLAB, "agent", "--token-file", str(token), *words)
            stack.enter_context(
                started(command, lambda line: "listening" in line, XDG_RUNTIME_DIR=str(notes))
            )
            playing = within(host, sys.executable, str(PLAYED), str(folder), "1", "write")
            rank = str(number - 2)
            stack.enter_context(
                started(playing, lambda line: line == "up\n", RANK=rank, WORLD_SIZE="2")
            )
        listed = ask("--list", "--json")
        assert "10.213.0.9" in listed.stderr
        assert ranks(listed.stdout) == [0, 1], listed.stdout
        for wrong, reason in (
            (ask("--list", "--json", file=other), "token"),
            (ask("--list", "--json", trust=False), ""),
        ):
            assert wrong.returncode == 1
            assert ranks(wrong.stdout) == []
            assert reason in wrong.stderr
            assert "Traceback" not in wrong.stderr
        done = ask("--duration-ms", "100", "--out", str(tmp_path / "out"), "--json")
    assert done.returncode == 1, "one of the three is not there"
    answer = json.loads(done.stdout)
    assert sorted((r["rank"], r["state"], r["reason"]) for r in answer["receipts"]) == [
        (0, "valid", ""),
        (1, "valid", ""),
    ]
    problems = {host["host"]: host["problem"] for host in answer["hosts"]}
    assert [host for host, problem in problems.items() if problem] == ["10.213.0.9"]
    # Both began at the start that was set for both, over the wire and in a file each.
    first, second = (receipt["first_ms"] for receipt in answer["receipts"])
    # Kineto's protocol counts whole milliseconds.
    assert abs(first - second) <= 1.0
    assert len(list((tmp_path / "out").iterdir())) == 2
