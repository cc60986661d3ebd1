"""Events that a watch sends, metrics that it offers; servers that fail, hostile clients."""

from __future__ import annotations

import http.server
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conditions import wait_for

from hanglab.harness.errors import UsageError
from hanglab.harness.watching.events import WatchEvent
from hanglab.harness.watching.metrics import MetricsServer
from hanglab.harness.watching.telling import Teller
from hanglab.harness.watching.webhook import Webhook

EVENT = WatchEvent("stopped", 'job "a"\n', "Rank 1 is stopped.", cause="process_frozen")
QUICK = (0.01, 0.01, 0.01)


def make_certificate(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


class Receiver:
    """A web server that answers with these codes, and 200 after them."""

    def __init__(self, codes: list[int], tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[str | None, dict[str, Any]]] = []
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append((self.headers["Authorization"], json.loads(body)))
                code = codes.pop(0) if codes else 200
                self.send_response(code)
                if code == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def receivers() -> Iterator[list[Receiver]]:
    made: list[Receiver] = []
    yield made
    for one in made:
        one.server.shutdown()
        one.server.server_close()


def hook(port: int, said: list[str], scheme: str = "http", **more: Any) -> Webhook:
    return Webhook(f"{scheme}://127.0.0.1:{port}/hook", say=said.append, tries_s=QUICK, **more)


def test_an_event_is_sent_again_until_it_is_taken_with_the_secret(receivers) -> None:
    receivers.append(receiver := Receiver([503, 429]))
    said: list[str] = []
    webhook = hook(receiver.port, said, secret="s3cret")
    webhook.send(EVENT)
    wait_for(lambda: webhook.sent, "the event to be sent")
    webhook.close()
    assert len(receiver.requests) == 3 and not said
    authorization, body = receiver.requests[-1]
    assert authorization == "Bearer s3cret"
    assert body["schema"] == "hanglab.watch/1" and body["cause"] == "process_frozen"
    assert body["text"] == "hanglab: Rank 1 is stopped."


@pytest.mark.parametrize("code", [400, 302])
def test_who_refuses_is_asked_once_and_nobody_is_followed_elsewhere(receivers, code) -> None:
    receivers.append(receiver := Receiver([code]))
    said: list[str] = []
    webhook = hook(receiver.port, said, secret="s3cret")
    webhook.send(EVENT)
    wait_for(lambda: webhook.lost, "the event to be given up")
    webhook.close()
    assert len(receiver.requests) == 1
    assert str(code) in said[0] and "s3cret" not in said[0]


def test_a_webhook_whose_certificate_nobody_vouches_for_gets_nothing(receivers, tmp_path) -> None:
    certificate, key = make_certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    receivers.append(receiver := Receiver([], tls))
    said: list[str] = []
    stranger = hook(receiver.port, said, "https", secret="s3cret")
    stranger.send(EVENT)
    wait_for(lambda: stranger.lost, "the event to be given up")
    stranger.close()
    assert "CERTIFICATE_VERIFY_FAILED" in said[0] and not receiver.requests
    known = hook(receiver.port, said, "https", authority=certificate)
    known.send(EVENT)
    wait_for(lambda: known.sent, "the event to be sent")
    known.close()


@pytest.mark.parametrize(
    "url", ["http://example.org/hook", "ftp://example.org", "hook", "https://"]
)
def test_a_webhook_that_is_unsafe_or_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        Webhook(url)


def served(**more: Any) -> MetricsServer:
    jobs = [{"job": EVENT.job, "ranks": 4, "stopped": True, "pause_s": 130.0, "limit_s": 120.0}]
    teller = Teller(lambda _: None)
    teller.tell(EVENT)
    return MetricsServer("127.0.0.1", 0, lambda: teller.metrics(jobs, 2), **more)


def get(server: MetricsServer, path: str = "/metrics", **headers: str) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def test_metrics_have_each_job_and_event() -> None:
    server = served()
    try:
        text = get(server)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(server, "/etc/passwd")
    finally:
        server.close()
    assert 'hanglab_watch_stopped{job="job \\"a\\"\\n"} 1' in text
    assert 'hanglab_watch_events_total{event="stopped",cause="process_frozen"} 1' in text
    assert "hanglab_watch_suspicions_total 2" in text


def test_a_token_is_asked_of_everybody() -> None:
    server = served(token="0123456789abcdef")
    try:
        for wrong in ({}, {"Authorization": "Bearer nonsense"}, {"Authorization": "\u00e9"}):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                get(server, **wrong)
        assert "hanglab_watch_jobs 1" in get(server, Authorization="Bearer 0123456789abcdef")
    finally:
        server.close()


_ASK = """
import os, socket, sys
"".encode("idna")  # the other user may not read its module
os.setgroups([]); os.setgid(65534); os.setuid(65534)
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60) as connection:
    connection.sendall(b"GET /metrics HTTP/1.0\\r\\n\\r\\n")
    print(connection.makefile("rb").read().decode())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user: run it as root")
def test_another_user_of_the_host_gets_nothing() -> None:
    server = served()
    try:
        asked = subprocess.run(
            [sys.executable, "-c", _ASK, str(server.port)],
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        server.close()
    assert " 401 " in asked.stdout and "hanglab_watch" not in asked.stdout


def test_clients_that_send_too_much_or_nothing_keep_nobody_out() -> None:
    server = served()
    try:
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(30)]
        endless = socket.create_connection(("127.0.0.1", server.port))
        endless.settimeout(60)
        try:
            for _ in range(400):
                endless.sendall(b"GET /" + b"x" * 65536)
        except OSError:
            pass  # it was cut

        def answered() -> str:
            try:
                return get(server)
            except OSError:  # all places are taken, for seconds at most
                return ""

        assert "hanglab_watch_jobs 1" in wait_for(answered, "an answer")
        for one in (*silent, endless):
            one.close()
    finally:
        server.close()


def test_metrics_beyond_loopback_take_a_token_and_tls(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    for more in ({}, {"token": "0123456789abcdef"}, {"certificate": certificate, "key": key}):
        with pytest.raises(UsageError, match="without a token and TLS"):
            MetricsServer("0.0.0.0", 0, lambda: "", **more)  # type: ignore[arg-type]
    server = served(token="0123456789abcdef", certificate=certificate, key=key)
    try:
        trusting = ssl.create_default_context(cafile=str(certificate))
        request = urllib.request.Request(
            f"https://127.0.0.1:{server.port}/metrics",
            headers={"Authorization": "Bearer 0123456789abcdef"},
        )
        with urllib.request.urlopen(request, context=trusting, timeout=60) as answer:
            assert b"hanglab_watch_jobs 1" in answer.read()
    finally:
        server.close()
