"""Asking a rank's own recorder thread for something, over its socket."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec


class NoReply(Exception):
    """The rank's thread did not answer; its text says why."""


def ask(address: Path, command: str, deadlines: list[float]) -> Iterator[dict[str, Any]]:
    """Send a command and yield the answers as they come.

    ``deadlines`` give, for each answer, the seconds since the call by which it
    must have come.  Raises NoReply.
    """
    start = time.monotonic()
    received = b""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(deadlines[0])
            connection.connect(os.fspath(address))
            connection.sendall(msgspec.json.encode({"command": command}) + b"\n")
            for deadline in deadlines:
                while b"\n" not in received:
                    left = start + deadline - time.monotonic()
                    if left <= 0:
                        raise TimeoutError
                    connection.settimeout(left)
                    block = connection.recv(1 << 20)
                    if not block:
                        raise NoReply("its recorder thread closed the connection")
                    received += block
                line, _, received = received.partition(b"\n")
                yield msgspec.json.decode(line, type=dict[str, Any])
    except TimeoutError:
        raise NoReply("no reply from its recorder thread") from None
    except OSError as error:
        raise NoReply(f"its recorder thread cannot be reached: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise NoReply(f"its recorder thread's answer cannot be read: {error}") from None
