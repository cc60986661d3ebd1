"""Asking NCCL's RAS service what its communicators are at.

Every process with a communicator listens at NCCL_RAS_ADDR (``localhost:28028``
unless set) and answers lines of text over TCP, since NCCL 2.24; JSON since
2.28.  Protocol: NVIDIA/nccl, src/ras/client.cc.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable

_DEFAULT = "localhost:28028"
_PROTOCOL = 2
#: Seconds that NCCL may wait for its own peers, and that this waits for NCCL.
_NCCL_S = 1
_PATIENCE_S = 3.0
#: For the first line of a process that may be stopped, in seconds: it is sent at once otherwise.
_GREETING_S = 0.7
_LIMIT = 4 << 20


class NoAnswer(Exception):
    """Nobody answers there, or not as NCCL does; the text says why."""


def address_of(environment: dict[str, str]) -> tuple[str, int]:
    """Host and port of a process's RAS service.  Raises NoAnswer where it is switched off."""
    if environment.get("NCCL_RAS_ENABLE") == "0":
        raise NoAnswer("NCCL_RAS_ENABLE is 0")
    host, _, port = environment.get("NCCL_RAS_ADDR", _DEFAULT).rpartition(":")
    if not port.isdecimal():
        raise NoAnswer("NCCL_RAS_ADDR is no address with a port")
    return host.strip("[]") or "localhost", int(port)


def ask(host: str, port: int) -> dict[str, object]:
    """The verbose status: NCCL's own JSON, or ``{"text": ...}`` of releases before it.

    Raises NoAnswer.  Takes up to three seconds.
    """
    until = time.monotonic() + _PATIENCE_S
    try:
        with _greeted(host, port, until) as sock:

            def line() -> str:
                return _until(sock, until, _is_line)

            sock.sendall(f"TIMEOUT {_NCCL_S}\n".encode())
            if line().strip().upper() != "OK":
                raise NoAnswer("NCCL refused a timeout")
            sock.sendall(b"SET FORMAT json\n")
            structured = line().strip().upper() == "OK"
            sock.sendall(b"VERBOSE STATUS\n")
            # It ends its answer by closing the connection.
            text = _until(sock, until, lambda data: False)
    except OSError as error:
        raise NoAnswer(f"{host}:{port}: {error.strerror or error}") from None
    if structured:
        with contextlib.suppress(ValueError):
            document = json.loads(text)
            if isinstance(document, dict):
                return document
    return {"text": text}


def _greeted(host: str, port: int, until: float) -> socket.socket:
    """A connection to a process that answers; the caller closes it.  Raises NoAnswer and OSError.

    All processes of a job listen at one port.  One that is stopped is among them, and its share of
    the connections waits in its queue: another connection finds another process.
    """
    while True:
        sock = socket.create_connection((host, port), timeout=0.5)
        try:
            sock.sendall(f"CLIENT PROTOCOL {_PROTOCOL}\n".encode())
            soon = min(until, time.monotonic() + _GREETING_S)
            if _until(sock, soon, _is_line).upper().startswith("SERVER PROTOCOL "):
                return sock
            sock.close()
        except TimeoutError:
            sock.close()
            if time.monotonic() >= until:
                raise
            continue
        except BaseException:
            sock.close()
            raise
        raise NoAnswer("something else than NCCL answers there")


def _is_line(data: bytes) -> bool:
    return data.endswith(b"\n")


def _until(sock: socket.socket, until: float, complete: Callable[[bytes], bool]) -> str:
    data = b""
    while not complete(data) and len(data) < _LIMIT:
        sock.settimeout(max(0.01, until - time.monotonic()))
        block = sock.recv(1 << 16)
        if not block:
            break
        data += block
    return data.decode("utf-8", "replace")
