"""The TCP server: one short-lived thread per connection, few at a time, each with a deadline."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hanglab.recorder.profiling import wire

if TYPE_CHECKING:
    import ssl

#: More connections than this at once are closed unread: somebody floods.
_MAX_CONNECTIONS = 32
#: A connection that has not brought its request by then is closed, in seconds.
_PATIENCE_S = 5.0

Answer = Callable[[dict[str, Any]], dict[str, Any]]


class Server:
    """Listens, reads one request per connection, and answers it."""

    def __init__(
        self,
        addresses: Sequence[str],
        port: int,
        answer: Answer,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """``port`` 0 takes a free one.  Raises OSError, and RuntimeError without a thread."""
        self._answer = answer
        self._tls = tls
        self._slots = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        self._closing = threading.Event()
        self._listeners: list[socket.socket] = []
        self.port = port
        try:
            for address in addresses:
                family = socket.AF_INET6 if ":" in address else socket.AF_INET
                listener = socket.create_server(
                    (address, self.port), family=family, backlog=128, dualstack_ipv6=False
                )
                self._listeners.append(listener)
                self.port = listener.getsockname()[1]
            for listener in self._listeners:
                threading.Thread(
                    target=self._accept, args=(listener,), name="hanglab-profiling", daemon=True
                ).start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._closing.set()
        for listener in self._listeners:
            # shutdown wakes the thread that waits in accept; close alone does not.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                if self._closing.is_set():
                    return
                # Out of descriptors, say: what is open now will close.
                time.sleep(0.05)
                continue
            if not self._slots.acquire(blocking=False):
                connection.close()
                continue
            try:
                threading.Thread(
                    target=self._serve, args=(connection,), name="hanglab-profiling", daemon=True
                ).start()
            except RuntimeError:
                connection.close()
                self._slots.release()

    def _serve(self, connection: socket.socket) -> None:
        try:
            until = time.monotonic() + _PATIENCE_S
            connection.settimeout(_PATIENCE_S)
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            header = _receive(connection, wire.LENGTH.size, until)
            length = wire.body_length(header, wire.MAX_REQUEST)
            message = wire.decode(_receive(connection, length, until))
            connection.settimeout(_PATIENCE_S)
            connection.sendall(wire.encode(self._answer(message)))
        except wire.BadMessage as error:
            with contextlib.suppress(OSError):
                connection.sendall(wire.encode({"error": str(error)}))
        except OSError:
            pass
        finally:
            with contextlib.suppress(OSError):
                connection.close()
            self._slots.release()


def _receive(connection: socket.socket, size: int, until: float) -> bytes:
    """Raises OSError where the peer is gone or slower than the deadline."""
    data = bytearray()
    while len(data) < size:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        block = connection.recv(size - len(data))
        if not block:
            raise ConnectionError
        data += block
    return bytes(data)
