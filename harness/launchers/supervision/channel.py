"""JSON lines over a socket pair, between hanglab and the processes that watch its jobs."""

from __future__ import annotations

import json
import os
import select
import socket
import time
from contextlib import suppress
from typing import Any, Protocol

Message = dict[str, Any]


class ChannelClosed(Exception):
    """The other end is gone."""


class _Descriptor(Protocol):
    def fileno(self) -> int: ...


def readable(*ends: _Descriptor | int | None, timeout: float) -> set[int]:
    """Descriptors among ``ends`` that can be read, after at most ``timeout`` seconds.

    Unlike ``select`` it has no limit on the descriptors' numbers.
    """
    poll = select.poll()
    for end in ends:
        if end is not None:
            poll.register(end, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(max(0.0, timeout) * 1000)}


class MessageChannel:
    """One end of a stream socket that carries one JSON object per line."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._buffer = b""

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """Raises :class:`ChannelClosed` if nobody can read it any more."""
        try:
            self._write(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def receive(self, timeout: float) -> Message | None:
        """The next message, or None when none came in time.  Raises :class:`ChannelClosed`."""
        until = time.monotonic() + timeout
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                message: Message = json.loads(line)
                return message
            if not readable(self, timeout=until - time.monotonic()):
                return None
            try:
                data = self._read()
            except OSError as error:
                raise ChannelClosed(str(error)) from error
            if not data:
                raise ChannelClosed("end of stream")
            self._buffer += data

    def _write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def _read(self) -> bytes:
        return self._socket.recv(1 << 16)

    def close(self) -> None:
        self._socket.close()

    def hang_up(self) -> None:
        """Closes the channel also for processes that hold a copy of this end."""
        shut_down(self._socket)
        self._socket.close()


class PipeChannel(MessageChannel):
    """One end of two pipes that carry the same: one to read from, one to write to."""

    def __init__(self, source: int, target: int) -> None:
        self._source = source
        self._target = target
        self._buffer = b""

    def fileno(self) -> int:
        return self._source

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._target, data) :]

    def _read(self) -> bytes:
        return os.read(self._source, 1 << 16)

    def close(self) -> None:
        os.close(self._source)
        os.close(self._target)

    def hang_up(self) -> None:
        self.close()


def shut_down(end: socket.socket) -> None:
    """Ends the connection, whoever else was forked off with a copy of ``end``."""
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


def hand_over(end: socket.socket, message: Message, descriptor: int) -> None:
    """Sends one message and a descriptor over a socket that keeps message boundaries.

    Raises :class:`ChannelClosed`.
    """
    try:
        socket.send_fds(end, [json.dumps(message).encode()], [descriptor])
    except OSError as error:
        raise ChannelClosed(str(error)) from error


def take_over(end: socket.socket) -> tuple[Message, int]:
    """The other half of :func:`hand_over`."""
    try:
        data, descriptors, _flags, _address = socket.recv_fds(end, 1 << 16, 1)
    except OSError as error:
        raise ChannelClosed(str(error)) from error
    if not data or not descriptors:
        raise ChannelClosed("end of stream")
    message: Message = json.loads(data)
    return message, descriptors[0]
