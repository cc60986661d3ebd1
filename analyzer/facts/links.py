"""TCP connections seen from both ends: which halves belong together, and how each stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hanglab.analyzer.facts.case_facts import RankView
from hanglab.recorder.case.host_records import Connection, ConnectionSample


@dataclass(frozen=True)
class SocketEnd:
    """A rank's half of a connection: at the capture, and when it was first seen before."""

    rank: int
    now: Connection
    before: Connection | None
    #: Time between the two samples.
    seconds: float

    @property
    def active_s(self) -> float:
        """Of those seconds the part up to when it last had something acknowledged.

        A job that comes to its end, or waits for something else, sends nothing any more.
        """
        idle = min(self.now.last_sent_ms or 0, self.now.last_acknowledged_ms or 0) / 1e3
        return max(0.0, self.seconds - idle)

    def grown(self, name: str) -> float:
        """Growth of a counter between the samples; 0 where it was not read."""
        old = getattr(self.before, name) if self.before is not None else None
        new = getattr(self.now, name)
        return max(0.0, new - old) if new is not None and old is not None else 0.0


@dataclass(frozen=True)
class Link:
    """Both ends of one connection between two ranks."""

    ends: tuple[SocketEnd, SocketEnd]

    @property
    def ranks(self) -> tuple[int, int]:
        return self.ends[0].rank, self.ends[1].rank

    @property
    def directions(self) -> tuple[tuple[SocketEnd, SocketEnd], tuple[SocketEnd, SocketEnd]]:
        """(sender, receiver), both ways."""
        return self.ends, (self.ends[1], self.ends[0])


def latest(samples: list[ConnectionSample]) -> ConnectionSample | None:
    """The sample of the latest capture, else the last one."""
    captured = [sample for sample in samples if sample.capture]
    return (captured or samples)[-1] if samples else None


def links_of(views: Mapping[int, RankView]) -> list[Link]:
    """Connections of which both ends were sampled, in different ranks."""
    ends: dict[tuple[str, str], SocketEnd] = {}
    for rank, view in views.items():
        for sample, connection in _last_seen(view.connections):
            key = connection.local, connection.remote
            since, before = _earliest(view.connections, key)
            seconds = (sample.at.mono_ns - since) / 1e9 if before is not None else 0.0
            ends[key] = SocketEnd(rank, connection, before, seconds)
    found = []
    for (local, remote), end in ends.items():
        other = ends.get((remote, local))
        if other is not None and local < remote and other.rank != end.rank:
            found.append(Link((end, other)))
    return sorted(found, key=lambda link: (sorted(link.ranks), link.ends[0].now.local))


def _last_seen(samples: list[ConnectionSample]) -> list[tuple[ConnectionSample, Connection]]:
    """Connections of the latest capture; of a rank without one as they were last seen.

    A rank closes them at its end, a while before it is gone.
    """
    last = latest(samples)
    if last is None:
        return []
    if last.capture:
        return [(last, connection) for connection in last.connections]
    found: dict[tuple[str, str], tuple[ConnectionSample, Connection]] = {}
    for sample in samples:
        for connection in sample.connections:
            found[connection.local, connection.remote] = sample, connection
    return list(found.values())


def _earliest(
    samples: list[ConnectionSample], key: tuple[str, str]
) -> tuple[int, Connection | None]:
    """Time when a connection was first seen (monotonic nanoseconds), and its state then."""
    for sample in samples:
        for connection in sample.connections:
            if (connection.local, connection.remote) == key:
                return sample.at.mono_ns, connection
    return 0, None
