"""hanglab's ends of the channels to its processes in pods, each through an exec of its own."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from hanglab.harness.kubernetes.connection import KubernetesCluster
from hanglab.harness.kubernetes.pod_exec import ERR, IN, OUT, open_exec
from hanglab.harness.launchers.kubernetes.pods import CONTAINER
from hanglab.harness.launchers.nodes.remote_job import Taken
from hanglab.harness.launchers.supervision.channel import Message

#: Of what a node says on standard error, the last.
_WORDS = 4096
#: A line that is longer is none of hanglab's: its files come in pieces.
_LONGEST = 1 << 20


class PodLinks:
    """Implements :class:`~hanglab.harness.launchers.nodes.remote_job.NodeLinks`.

    Safe to share among threads.
    """

    def __init__(self, taken: Taken) -> None:
        self._taken = taken
        self._sockets: dict[int, Any] = {}
        self._words: dict[int, bytes] = {}
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def start(
        self, number: int, cluster: KubernetesCluster, pod: str, command: Sequence[str]
    ) -> None:
        """Runs a command in a pod.  Raises KubernetesError."""
        opened = open_exec(cluster, pod, CONTAINER, command, stdin=True)
        opened.settimeout(None)
        # Of a machine that has vanished nobody says so.
        opened.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
            with suppress(AttributeError, OSError):
                opened.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        self._sockets[number] = opened
        self._words[number] = b""
        thread = threading.Thread(
            target=self._listen, args=(number, opened), name=f"hanglab-pod{number}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def send(self, number: int, message: Message) -> bool:
        import websocket

        with self._lock:
            opened = self._sockets.get(number)
            if opened is None:
                return False
            try:
                opened.send_binary(bytes([IN]) + json.dumps(message).encode() + b"\n")
            except (websocket.WebSocketException, OSError):
                return False
            return True

    def words_of(self, number: int) -> str:
        lines = self._words.get(number, b"").decode("utf-8", "replace").splitlines()
        told = [line.strip() for line in lines if line.strip()]
        return told[-1].rstrip(".") if told else ""

    def close(self) -> None:
        with self._lock:
            sockets = list(self._sockets.values())
            self._sockets.clear()
        for opened in sockets:
            with suppress(OSError):
                opened.shutdown()
        for thread in self._threads:
            thread.join()

    def _listen(self, number: int, opened: Any) -> None:
        import websocket

        buffer = b""
        with suppress(websocket.WebSocketException, OSError, ValueError, AttributeError):
            while True:
                kind, frame = opened.recv_data_frame(True)
                if kind == websocket.ABNF.OPCODE_CLOSE:
                    break
                if kind not in (websocket.ABNF.OPCODE_BINARY, websocket.ABNF.OPCODE_TEXT):
                    continue
                channel, data = frame.data[:1], frame.data[1:]
                if channel == bytes([OUT]):
                    *lines, buffer = (buffer + data).split(b"\n")
                    for line in lines:
                        self._taken(number, json.loads(line))
                    if len(buffer) > _LONGEST:
                        break
                elif channel == bytes([ERR]):
                    self._words[number] = (self._words[number] + data)[-_WORDS:]
        with self._lock:
            self._sockets.pop(number, None)
        with suppress(OSError):
            opened.shutdown()
        self._taken(number, None)
