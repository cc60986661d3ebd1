"""Locked doors: what the agent lets in, and what it survives."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import ssl
import stat
import struct
import subprocess
import time
from pathlib import Path

import pytest
from conditions import wait_for
from played_kineto import Played, played, write_trace

from hanglab.recorder.profiling import client, fabric, multi_host_request
from hanglab.recorder.profiling.access_control import Refused, client_tls, confined
from hanglab.recorder.profiling.client import AgentRefused, AgentUnreachable, Endpoint
from hanglab.recorder.profiling.configuration import TraceWindow
from hanglab.recorder.profiling.fabric_socket import SocketNameTaken, remove_dead_clients
from hanglab.recorder.profiling.multi_host_request import HostPart
from hanglab.recorder.profiling.service import ProfilingService, Settings
from hanglab.recorder.profiling.trace_records import ProfileRequest, Receipt

TOKEN = "a token that nobody guesses"


def serves(endpoint: Endpoint) -> bool:
    return client.ask(endpoint, {"fn": "getStatus"}) == {"status": 1}


def test_it_listens_beyond_loopback_only_with_a_token(sockets: Path) -> None:
    open_door = Settings(sockets, "here", sockets, ("0.0.0.0",))
    with pytest.raises(Refused, match="token"):
        ProfilingService(open_door)
    service = ProfilingService(Settings(sockets, "here", sockets, ("0.0.0.0",), token=TOKEN))
    try:
        with pytest.raises(AgentRefused, match="token"):
            client.ask(Endpoint("127.0.0.1", service.port), {"fn": "getStatus"})
        with pytest.raises(AgentRefused, match="token"):
            client.ask(Endpoint("127.0.0.1", service.port, "another"), {"fn": "getStatus"})
        assert serves(Endpoint("127.0.0.1", service.port, TOKEN))
    finally:
        service.close()


def make_certificate(folder: Path) -> tuple[Path, Path]:
    key, certificate = folder / "key.pem", folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=agent", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return key, certificate


def test_tls(sockets: Path, tmp_path: Path) -> None:
    key, certificate = make_certificate(tmp_path)
    (tmp_path / "other").mkdir()
    _, other = make_certificate(tmp_path / "other")
    settings = Settings(sockets, "here", sockets, token=TOKEN, certificate=certificate, key=key)
    service = ProfilingService(settings)
    try:
        assert serves(Endpoint("127.0.0.1", service.port, TOKEN, client_tls(certificate)))
        with pytest.raises(AgentUnreachable, match="TLS"):
            client.ask(
                Endpoint("127.0.0.1", service.port, TOKEN, client_tls(other)), {"fn": "getStatus"}
            )
        with pytest.raises(AgentUnreachable):
            client.ask(Endpoint("127.0.0.1", service.port, TOKEN), {"fn": "getStatus"})
    finally:
        service.close()


@pytest.mark.parametrize(
    "path",
    ["/etc/a.json", "{root}/../a.json", "{root}/out/a.json", "a.json", "{root}/none/a.json", ""],
)
def test_no_path_leads_out_of_the_output_root(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "out").symlink_to(tmp_path)
    with pytest.raises(Refused):
        confined(path.format(root=root), root)
    assert confined(f"{root}/a.json", root) == f"{root}/a.json"


def test_dynolog_request_cannot_write_elsewhere(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    with played(sockets, os.getpid()) as (process,):
        process.ask()
        for config in (
            "ACTIVITIES_LOG_FILE=/etc/cron.d/a.json\n",
            "ACTIVITIES_DURATION_MSECS=5\n",
            f"ACTIVITIES_LOG_FILE={sockets}/traces/a.json\nEVENTS_LOG_FILE=/etc/a\n",
        ):
            with pytest.raises(AgentRefused):
                client.request_dynolog(endpoint, config, 0, [], 3)
        assert process.ask() == ""


@pytest.mark.parametrize(
    "asked",
    [
        {"window": {"duration_ms": "x"}},
        {"window": {"duration_ms": -1}},
        {"selection": {"ranks": "all"}},
        5,
    ],
)
def test_request_that_cannot_be_read_is_told(
    service: ProfilingService, endpoint: Endpoint, asked: object
) -> None:
    with pytest.raises(AgentRefused):
        client.ask(endpoint, {"fn": "hanglab.profile", "asked": asked})


@pytest.mark.parametrize("file", ["../../etc/passwd", "/etc/passwd", "", None, 3])
def test_only_traces_of_an_order_are_handed_out(
    service: ProfilingService, endpoint: Endpoint, sockets: Path, file: object
) -> None:
    with played(sockets, os.getpid()) as (process,):
        process.ask()
        order, _ = client.place(endpoint, ProfileRequest())
        with pytest.raises(AgentRefused, match="has no trace"):
            client.ask(endpoint, {"fn": "hanglab.fetch", "order": order, "file": file})


def test_what_is_fetched_is_whole_or_not_there_and_overwrites_nothing(
    service: ProfilingService, endpoint: Endpoint, sockets: Path, tmp_path: Path
) -> None:
    with played(sockets, os.getpid()) as (process,):
        process.ask()
        order, _ = client.place(endpoint, ProfileRequest(window=TraceWindow(duration_ms=100)))
        write_trace(process.ask(), os.getpid())
        wait_for(lambda: client.receipts(endpoint, order)[0].final, "the trace")
        (receipt,) = client.receipts(endpoint, order)
        target = tmp_path / "trace.json"
        client.fetch(endpoint, order, receipt.file, target)
        assert target.read_bytes() == Path(receipt.path).read_bytes()
        target.write_text("mine")
        with pytest.raises(FileExistsError):
            client.fetch(endpoint, order, receipt.file, target)
        assert target.read_text() == "mine"
        target.unlink()
        Path(receipt.path).unlink()
        with pytest.raises(AgentRefused, match="cannot be read"):
            client.fetch(endpoint, order, receipt.file, target)
        assert not target.exists()


@pytest.mark.parametrize("file", ["../a.json", "/tmp/hlp-a.json", "b/../../a.json", ".."])
def test_agent_cannot_have_its_client_write_elsewhere(tmp_path: Path, file: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    receipt = Receipt("here", 1, 0, state="valid", file=file)
    part = HostPart(Endpoint("127.0.0.1", 1), "here", "order", [receipt])
    assert multi_host_request.bring([part], out) == {file: "that is no name of a trace"}


@pytest.mark.parametrize("patience_s", [0.0, -1.0, 1e300])
def test_nobody_is_waited_for_without_end(
    service: ProfilingService, endpoint: Endpoint, sockets: Path, patience_s: float
) -> None:
    with played(sockets, os.getpid()) as (process,):
        process.ask()
        with pytest.raises(AgentRefused, match="at most 3600 s"):
            client.place(endpoint, ProfileRequest(patience_s=patience_s))


def test_jobs_of_other_users_may_ask(service: ProfilingService, sockets: Path) -> None:
    # To send to a socket file takes the right to write to it.
    assert stat.S_IMODE((sockets / "dynolog").stat().st_mode) == 0o666


def test_garbage_giants_and_slow_clients_do_no_harm(
    service: ProfilingService, endpoint: Endpoint
) -> None:
    generator = random.Random(1)
    with contextlib.ExitStack() as stack:
        for kind in range(60):
            connection = stack.enter_context(
                socket.create_connection((endpoint.host, endpoint.port), 5)
            )
            with contextlib.suppress(OSError):
                if kind % 4 == 0:
                    connection.sendall(generator.randbytes(100))
                elif kind % 4 == 1:
                    connection.sendall(struct.pack("@i", 0x7FFFFFFF))
                elif kind % 4 == 2:
                    connection.sendall(struct.pack("@i", 100) + b"[" * 100)
                # The rest says nothing, and stays.
        # Those that say nothing hold their places until their time is up.
        deadline = time.monotonic() + 60
        while True:
            try:
                assert serves(endpoint)
                break
            except AgentUnreachable:
                assert time.monotonic() < deadline
                time.sleep(0.1)


def test_ten_thousand_hostile_frames_and_the_agent_still_serves(
    service: ProfilingService, endpoint: Endpoint, sockets: Path
) -> None:
    generator = random.Random(2)
    good = fabric.encode_request(fabric.FabricRequest(3, 0, (os.getpid(),)))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for _ in range(10_000):
            data = bytearray(good)
            for _ in range(generator.randint(1, 4)):
                data[generator.randrange(len(data))] = generator.randrange(256)
            sender.sendto(bytes(data[: generator.randint(0, len(data))]), f"{sockets}/dynolog")
    with played(sockets, os.getpid()) as (process,):
        assert process.ask() == ""
        assert len(client.status(endpoint).processes) == 1


def test_socket_of_a_living_daemon_is_not_taken_over(
    service: ProfilingService, sockets: Path
) -> None:
    with pytest.raises(SocketNameTaken, match="another profiling daemon"):
        ProfilingService(Settings(sockets, "here", sockets))
    with played(sockets, os.getpid()) as (process,):
        assert process.ask() == ""


def test_socket_of_a_dead_daemon_is_taken_over(sockets: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(f"{sockets}/dynolog")
    service = ProfilingService(Settings(sockets, "here", sockets))
    try:
        with played(sockets, os.getpid()) as (process,):
            assert process.ask() == ""
    finally:
        service.close()
    assert not (sockets / "dynolog").exists()


def test_remains_of_dead_processes_are_swept(sockets: Path) -> None:
    dead = Played(sockets, 1)
    dead.socket.close()
    living = Played(sockets, 2)
    try:
        assert remove_dead_clients(sockets) == 1
        assert not dead.path.exists()
        assert living.path.exists()
    finally:
        living.close()


def test_tls_context_trusts_nobody_else(tmp_path: Path) -> None:
    _, certificate = make_certificate(tmp_path)
    assert client_tls(certificate).verify_mode == ssl.CERT_REQUIRED
