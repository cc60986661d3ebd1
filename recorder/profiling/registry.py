"""The processes that have registered with the agent, and what each is about to be told."""

from __future__ import annotations

import statistics
import time
from collections import deque
from dataclasses import dataclass, field

from hanglab.recorder.profiling import processes
from hanglab.recorder.profiling.fabric import FabricRequest
from hanglab.recorder.profiling.processes import Identity, Registered
from hanglab.recorder.profiling.trace_delivery import TraceDelivery

#: A process that asks every 5 s, and has not for this long, has gone.
_SILENCE_S = 30.0
#: Strangers may send what they like; a host has a few dozen ranks.
MAX_PROCESSES = 4096
#: The period of a process that has only been heard once.
DEFAULT_PERIOD_S = 5.0
#: No pause of a process is taken for longer than its usual one and so many seconds: a job that
#: stood still for a minute does not put off the next traces by one.
_MOST_DELAY_S = 5.0


@dataclass
class Client:
    """One PyTorch process, by the address that it sends from."""

    address: str | bytes
    identity: Identity
    #: As the process names itself, and its ancestors, in its own namespace.
    pids: tuple[int, ...]
    job_id: int
    last_seen: float
    idle: bool = True
    #: What it is to be told, one after the other.
    waiting: deque[TraceDelivery] = field(default_factory=deque)
    #: What it was told last, until that has ended.
    given: TraceDelivery | None = None
    #: Whether it was ever told anything here.
    told: bool = False
    periods: deque[float] = field(default_factory=lambda: deque(maxlen=5))

    @property
    def own_pid(self) -> int:
        """Process id as the process knows it, and as it stands in the names of its files."""
        return self.pids[0]

    @property
    def period_s(self) -> float:
        """Seconds within which its next request comes: the longest of the latest pauses.

        On a crowded host they vary, and who asks after a start that was set for all has no trace.
        """
        if not self.periods:
            return DEFAULT_PERIOD_S
        return min(max(self.periods), statistics.median(self.periods) + _MOST_DELAY_S)

    @property
    def free(self) -> bool:
        """True if it can be told something now and will not lose it."""
        if self.given is not None and self.given.over(self.idle):
            self.given = None
        return self.idle and self.given is None

    @property
    def sets_turns(self) -> bool:
        """True if it is about to be told, for the first time, something by iterations.

        Kineto's thread that writes traces takes its turns, a second apart, from that moment.
        """
        if self.told or not self.waiting or not self.free:
            return False
        return self.waiting[0].by_iterations

    @property
    def free_in_s(self) -> float:
        """Seconds until all that it has been or is to be told is over, as far as can be seen."""
        given = self.given
        left_s = given.left_s() if given is not None and not given.over(self.idle) else 0.0
        # It has to ask for each.
        return left_s + sum(one.left_s() + self.period_s for one in self.waiting)


class Registry:
    """All clients of one agent.  Times are monotonic seconds."""

    def __init__(self, registered: Registered | None = None) -> None:
        self._registered = registered
        self._clients: dict[str, Client] = {}

    def knows(self, address: str | bytes, request: FabricRequest) -> bool:
        """True if that process has been heard before."""
        client = self._clients.get(_key(address))
        return client is not None and client.own_pid == request.pids[0]

    def heard(
        self,
        address: str | bytes,
        pid: int | None,
        request: FabricRequest,
        now: float | None = None,
    ) -> Client | None:
        """Take note of a request; ``pid`` is the sender's as the kernel gave it, None if unknown.

        None where there are too many already.
        """
        now = time.monotonic() if now is None else now
        key = _key(address)
        if self.knows(address, request):
            client = self._clients[key]
            # Retries of one request follow each other within milliseconds.
            if now - client.last_seen > 0.3 and client.idle:
                client.periods.append(now - client.last_seen)
            client.last_seen = now
            client.idle = request.idle
            return client
        if len(self._clients) >= MAX_PROCESSES:
            self.forget_gone(now)
            if len(self._clients) >= MAX_PROCESSES:
                return None
        identity = (
            processes.identify(pid, self._registered) if pid is not None else Identity(pid=None)
        )
        client = Client(address, identity, request.pids, request.job_id, now, request.idle)
        self._clients[key] = client
        return client

    def clients(self) -> dict[str, Client]:
        """Clients that are alive, by a short name that is unique on this host."""
        self.forget_gone(time.monotonic())
        return dict(self._clients)

    def ranks(self) -> dict[str, Client]:
        """Clients that are ranks of a job, looked up anew: a rank may register before it is one."""
        clients = self.clients()
        for client in clients.values():
            if client.identity.rank is None and client.identity.pid is not None:
                client.identity = processes.identify(client.identity.pid, self._registered)
        found = processes.ranks_among({key: c.identity for key, c in clients.items()})
        return {key: clients[key] for key in clients if key in found}

    def forget_gone(self, now: float) -> None:
        """Drop processes that have ended, or have been silent for long."""
        gone = [
            key
            for key, client in self._clients.items()
            if not processes.alive(client.identity)
            or (
                now - client.last_seen > max(_SILENCE_S, 4 * client.period_s)
                and (client.identity.pid is None or client.idle)
            )
        ]
        for key in gone:
            del self._clients[key]


def _key(address: str | bytes) -> str:
    text = address.decode("latin-1") if isinstance(address, bytes) else address
    return text.replace("\0", "").rsplit("/", 1)[-1]
