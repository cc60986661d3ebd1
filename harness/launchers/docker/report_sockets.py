"""hanglab's ends of the sockets over which the nodes of a job report."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hanglab.harness.launchers.supervision.channel import ChannelClosed, Message, MessageChannel

#: Called with a node's number and what it says, or None at its end; from a thread of its own.
Taken = Callable[[int, Message | None], None]


class ReportSockets:
    """Listens until closed.  Safe to share among threads."""

    def __init__(self, path: Path, user: tuple[int, int], taken: Taken) -> None:
        """Only ``user`` and root can connect.  Raises OSError."""
        self._taken = taken
        self._channels: dict[int, MessageChannel] = {}
        self._sockets: dict[int, socket.socket] = {}
        #: Connections that have not said yet which node they are.
        self._strangers: dict[int, tuple[socket.socket, MessageChannel]] = {}
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(os.fspath(path))
        path.chmod(0o600)
        os.chown(path, *user)
        self._listener.listen(64)
        self._wake, self._woken = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="hanglab-links", daemon=True)
        self._thread.start()

    def send(self, number: int, message: Message) -> bool:
        """False where the node cannot be reached any more."""
        with self._lock:
            channel = self._channels.get(number)
            if channel is None:
                return False
            try:
                channel.send(message)
            except ChannelClosed:
                return False
            return True

    def close(self) -> None:
        """Lets go of all nodes, which then end."""
        with suppress(OSError):
            os.write(self._woken, b"x")
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while True:
            poll = select.poll()
            ends = {
                self._wake,
                self._listener.fileno(),
                *self._strangers,
                *(s.fileno() for s in self._sockets.values()),
            }
            for end in ends:
                poll.register(end, select.POLLIN)
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._wake in ready:
                break
            if self._listener.fileno() in ready:
                end_, _ = self._listener.accept()
                end_.settimeout(5.0)
                self._strangers[end_.fileno()] = end_, MessageChannel(end_)
            for descriptor in ready & self._strangers.keys():
                self._meet(descriptor)
            for number, end_ in list(self._sockets.items()):
                if end_.fileno() in ready:
                    self._receive(number)
        self._let_go()

    def _meet(self, descriptor: int) -> None:
        end, channel = self._strangers.pop(descriptor)
        try:
            message = channel.receive(0)
        except (ChannelClosed, ValueError):
            end.close()
            return
        if message is None:
            self._strangers[descriptor] = end, channel
            return
        number = message["node"]
        with self._lock:
            self._channels[number] = channel
            self._sockets[number] = end
        self._taken(number, message)
        # What came in the same breath makes the socket readable no more.
        self._receive(number)

    def _receive(self, number: int) -> None:
        try:
            while (message := self._channels[number].receive(0)) is not None:
                self._taken(number, message)
        except (ChannelClosed, ValueError):
            with self._lock:
                self._channels.pop(number)
                self._sockets.pop(number).close()
            self._taken(number, None)

    def _let_go(self) -> None:
        with self._lock:
            for end in self._sockets.values():
                end.close()
            for end, _ in self._strangers.values():
                end.close()
            self._sockets.clear()
            self._channels.clear()
        self._listener.close()
        os.close(self._wake)
        os.close(self._woken)
