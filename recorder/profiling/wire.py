"""The TCP side: ``int32`` length in native order, then JSON; one request per connection.

Dynolog's own layout (dynolog/src/rpc/SimpleJsonServer.cpp); answers have the same.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

import msgspec

#: Dynolog's port.
PORT = 1778
#: A request is a few hundred bytes; a configuration text some kilobytes.
MAX_REQUEST = 256 * 1024
#: An answer may hold a block of a trace file, in base 64.
MAX_ANSWER = 16 * 1024 * 1024

LENGTH = struct.Struct("@i")


class BadMessage(ValueError):
    """The peer sent something that is no message; its text says what."""


def encode(message: object) -> bytes:
    body = msgspec.json.encode(message)
    return LENGTH.pack(len(body)) + body


def decode(body: bytes) -> dict[str, Any]:
    """Raises BadMessage."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadMessage(f"no JSON object: {error}") from None


def body_length(header: bytes, limit: int) -> int:
    """Raises BadMessage for a length that no message of ours has."""
    (length,) = LENGTH.unpack(header)
    if not 0 < length <= limit:
        raise BadMessage(f"a message of {length} bytes; at most {limit} are read")
    return int(length)


def exchange(connection: socket.socket, message: object, timeout_s: float) -> dict[str, Any]:
    """Send one message and wait for its answer.  Raises OSError and BadMessage."""
    until = time.monotonic() + timeout_s
    connection.settimeout(timeout_s)
    connection.sendall(encode(message))
    length = body_length(_receive(connection, LENGTH.size, until), MAX_ANSWER)
    return decode(_receive(connection, length, until))


def _receive(connection: socket.socket, size: int, until: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        connection.settimeout(left)
        block = connection.recv(min(size - len(data), 1 << 20))
        if not block:
            raise BadMessage("the connection was closed in the middle of an answer")
        data += block
    return bytes(data)
