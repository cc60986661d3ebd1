"""The profiling side of the agent, put together: fabric, TCP server, orders."""

from __future__ import annotations

import math
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hanglab.recorder.case import evidence_files as files
from hanglab.recorder.profiling import fabric
from hanglab.recorder.profiling.access_control import Refused, is_loopback, server_tls
from hanglab.recorder.profiling.fabric_socket import FabricSocket, Received, remove_dead_clients
from hanglab.recorder.profiling.iteration_pace import IterationPace
from hanglab.recorder.profiling.processes import Registered
from hanglab.recorder.profiling.registry import Client, Registry
from hanglab.recorder.profiling.server import Server
from hanglab.recorder.profiling.tcp_requests import Requests
from hanglab.recorder.profiling.trace_requests import TraceRequests

#: Seconds between two looks at orders while some are open.
_FOLLOW_S = 0.02
_HOUSEKEEPING_S = 10.0
#: How long the answer is held back that sets the turns of Kineto's writing thread, in seconds.
#: Where a process asks just after such a turn, its trace waits nearly a second to be written; so
#: one of a few short iterations is over by the next turn.  Kineto waits for no answer much longer.
_HOLD_S = 0.06
#: A pause after something went wrong that may go wrong again at once, in seconds.
_TROUBLE_S = 0.05
_MOST_TROUBLES = 20


@dataclass(frozen=True)
class Settings:
    """Settings of an agent: where it listens and what it may do."""

    #: Folder below which traces are written.
    root: Path
    host: str
    #: Folder of the socket files (KINETO_IPC_SOCKET_DIR); None for the abstract namespace.
    socket_folder: Path | None = None
    addresses: Sequence[str] = ("127.0.0.1",)
    port: int = 0
    token: str | None = None
    certificate: Path | None = None
    key: Path | None = None


class ProfilingService:
    """Runs in threads of its own until closed."""

    def __init__(
        self,
        settings: Settings,
        *,
        registered: Registered | None = None,
        rank_folder: Callable[[Client], Path | None] = lambda client: None,
        at_work: Callable[[Client], None] = lambda client: None,
        trouble: Callable[[str], None] = lambda text: None,
    ) -> None:
        """``registered`` and ``rank_folder`` tell of recorded ranks.

        ``at_work`` is called for each process while an order about it is open;
        ``trouble`` takes, once each, what went wrong in the thread that answers jobs.
        Raises Refused for settings that would let anybody in, OSError, and
        RuntimeError where no thread can be started.
        """
        beyond = [address for address in settings.addresses if not is_loopback(address)]
        if beyond and settings.token is None:
            raise Refused(f"to listen on {', '.join(beyond)} a token is needed (--token-file)")
        tls = None
        if settings.certificate is not None and settings.key is not None:
            tls = server_tls(settings.certificate, settings.key)
        self._at_work = at_work
        self._trouble = trouble
        self._told: set[str] = set()
        self._socket_folder = settings.socket_folder
        self.registry = Registry(registered)
        self._lock = threading.RLock()
        pace = IterationPace(rank_folder)

        def home(client: Client) -> Path | None:
            folder = rank_folder(client)
            return folder / files.TRACES.name if folder is not None else None

        self.orders = TraceRequests(self.registry, settings.root, settings.host, pace.known, home)
        self.requests = Requests(
            self.registry,
            self.orders,
            self._lock,
            settings.host,
            settings.root,
            pace,
            settings.token,
        )
        #: Ends the thread's wait for datagrams: a job's end waits for that of its agent.
        self._wake = os.eventfd(0)
        try:
            self._socket = FabricSocket(settings.socket_folder)
        except OSError:
            os.close(self._wake)
            raise
        self._closing = threading.Event()
        self._housekeeping = time.monotonic() + _HOUSEKEEPING_S
        self._held: list[tuple[Received, Client]] = []
        self._thread = threading.Thread(target=self._run, name="hanglab-fabric", daemon=True)
        try:
            self._server = Server(settings.addresses, settings.port, self.requests.answer, tls)
            try:
                self._thread.start()
            except RuntimeError:
                self._server.close()
                raise
        except (OSError, RuntimeError):
            os.close(self._wake)
            self._socket.close()
            raise
        self.port = self._server.port

    def close(self) -> None:
        self._closing.set()
        os.eventfd_write(self._wake, 1)
        self._server.close()
        self._thread.join(5.0)
        os.close(self._wake)
        self._socket.close()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while not self._closing.is_set():
            try:
                self._turn(poll)
            except Exception as error:
                # Without this thread no job would be answered any more, and nobody would see why.
                self._tell(f"{type(error).__name__}: {error}")
                self._closing.wait(_TROUBLE_S)

    def _turn(self, poll: select.poll) -> None:
        with self._lock:
            busy = self.orders.busy
        pause_s = _FOLLOW_S if busy else 0.25
        for received, _ in self._held:
            pause_s = min(pause_s, max(0.0, _HOLD_S - received.age_s))
        poll.poll(math.ceil(1e3 * pause_s))
        self._hear()
        held, self._held = self._held, []
        for received, client in held:
            if received.age_s < _HOLD_S:
                self._held.append((received, client))
            else:
                self._answer(received, client)
        if busy:
            with self._lock:
                self.orders.follow()
                for client in self.orders.at_work():
                    self._at_work(client)
        if time.monotonic() > self._housekeeping:
            self._housekeeping = time.monotonic() + _HOUSEKEEPING_S
            with self._lock:
                self.registry.forget_gone(time.monotonic())
            if self._socket_folder is not None:
                remove_dead_clients(self._socket_folder)

    def _tell(self, text: str) -> None:
        if text not in self._told and len(self._told) < _MOST_TROUBLES:
            self._told.add(text)
            self._trouble(text)

    def _hear(self) -> None:
        # A flood must not keep orders from being looked after.
        for _ in range(256):
            received = self._socket.receive()
            if received is None:
                return
            try:
                message = fabric.decode(received.data)
            except fabric.BadFrame:
                continue
            if not received.address:
                continue
            if isinstance(message, fabric.Context):
                if received.awaited:
                    self._socket.answer(received.address, fabric.encode_count(1))
                continue
            with self._lock:
                if new := not self.registry.knows(received.address, message):
                    # To look all ranks of a host up as they start may take longer than they wait.
                    self._answer(received, None)
                client = self.registry.heard(received.address, received.pid, message)
                if client is not None:
                    self.orders.heard(client)
                    if client.sets_turns:
                        self._held.append((received, client))
                        continue
            if not new:
                self._answer(received, client)

    def _answer(self, received: Received, client: Client | None) -> None:
        with self._lock:
            if not received.awaited:
                return
            text = self.orders.collect(client) if client is not None else ""
        self._socket.answer(received.address, fabric.encode_configuration(text))
