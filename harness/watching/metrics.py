"""Metrics of a watch in Prometheus' text format, for whoever may read them."""

from __future__ import annotations

import http.server
import os
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hanglab.harness.errors import HanglabError, UsageError
from hanglab.harness.watching.neighbours import user_of_peer
from hanglab.recorder.profiling.access_control import Refused, check_token, is_loopback, server_tls

#: Connections at once, and the seconds that one may take.
_AT_ONCE = 8
_MOST_S = 5.0

Sample = tuple[Mapping[str, str], float]


def metrics_text(metrics: Mapping[str, tuple[str, str, Sequence[Sample]]]) -> str:
    """``metrics`` by name: kind (gauge, counter), meaning, samples with their labels."""
    lines = []
    for name, (kind, meaning, samples) in metrics.items():
        lines += [f"# HELP hanglab_watch_{name} {meaning}", f"# TYPE hanglab_watch_{name} {kind}"]
        for labels, value in samples:
            words = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            lines.append(f"hanglab_watch_{name}{f'{{{words}}}' if words else ''} {value:g}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class MetricsServer:
    """Answers ``GET /metrics``.  Raises UsageError where it would be open to strangers.

    Without a token it answers this user and root alone, who are told by the kernel's table of
    connections: other users of the host reach loopback, too.
    """

    def __init__(
        self,
        address: str,
        port: int,
        text: Callable[[], str],
        token: str | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> None:
        if not is_loopback(address) and (token is None or certificate is None or key is None):
            raise UsageError(
                f"Metrics are not offered at {address} without a token and TLS.",
                "Give --token-file, --tls-certificate and --tls-key, or listen on 127.0.0.1.",
            )
        try:
            tls = server_tls(certificate, key) if certificate and key else None
            self._server = _BoundedServer(address, port, text, token, tls)
        except OSError as error:
            raise HanglabError(
                f"Metrics cannot be offered at {address}:{port}: {error.strerror or error}.",
                "Another watch may run already; name another port with --metrics.",
            ) from None
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="hanglab-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _BoundedServer(socketserver.ThreadingTCPServer):
    """Few connections at once, each with an end."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(
        self,
        address: str,
        port: int,
        text: Callable[[], str],
        token: str | None,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.text = text
        self.token = token
        self._tls = tls
        self._slots = threading.BoundedSemaphore(_AT_ONCE)
        super().__init__((address, port), _MetricsHandler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, peer = super().get_request()
        connection.settimeout(_MOST_S)
        if self._tls is not None:
            # The handshake is for the connection's own thread.
            connection = self._tls.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        return connection, peer

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # A byte now and then would hold a connection for ever.
        end = threading.Timer(_MOST_S, _cut, (request,))
        end.daemon = True
        end.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of what strangers send."""


def _cut(connection: socket.socket) -> None:
    try:
        # Below TLS, which would want to say goodbye.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
    except OSError:
        pass


class _MetricsHandler(http.server.BaseHTTPRequestHandler):
    server: _BoundedServer
    server_version = "hanglab"
    sys_version = ""

    def do_GET(self) -> None:
        try:
            self._check()
        except Refused:
            self._answer(401, "a token is needed\n")
            return
        if self.path.partition("?")[0] != "/metrics":
            self._answer(404, "there is /metrics\n")
            return
        self._answer(200, self.server.text())

    def _check(self) -> None:
        if self.server.token is not None:
            given = self.headers.get("Authorization", "").removeprefix("Bearer ").strip()
            check_token(self.server.token, given)
            return
        user = user_of_peer(self.connection)
        if user not in (os.geteuid(), 0):
            raise Refused("another user's connection")

    def _answer(self, code: int, text: str) -> None:
        data = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments: Any) -> None:
        """Log nothing: a scraper comes every few seconds."""
