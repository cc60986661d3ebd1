"""TCP connections seen from both ends: which halves belong together, and how each stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from hanglab.analyzer.facts.case_facts import RankView
from hanglab.recorder.case.host_records import Connection, ConnectionSample

#: Addresses by which a host means itself, as each host does.
_LOOPBACK = ("127.", "[::1]")


@dataclass(frozen=True)
class SocketEnd:
    """A rank's half of a connection: at the capture, and when it was first seen before."""

    rank: int
    now: Connection
    before: Connection
    #: Time between the two samples.
    seconds: float
    #: Round trips as the kernel had smoothed them at each sample of that time, in milliseconds.
    round_trips_ms: tuple[float, ...] = ()

    @property
    def active_s(self) -> float:
        """Part of those seconds up to when it last had something acknowledged.

        A job that comes to its end, or waits for something else, sends nothing any more.
        """
        idle = min(self.now.last_sent_ms or 0, self.now.last_acknowledged_ms or 0) / 1e3
        return max(0.0, self.seconds - idle)

    @property
    def typical_rtt_ms(self) -> float | None:
        """Median of those round trips; None where none was read.

        At the end of a job, where its link comes to rest, the last one is much shorter.
        """
        return median(self.round_trips_ms) if self.round_trips_ms else None

    def grown(self, name: str) -> float:
        """Growth of a counter between the samples; 0 where it was not read."""
        old = getattr(self.before, name)
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
        histories = _histories(view.connections)
        for sample, connection in _last_seen(view.connections):
            key = connection.local, connection.remote
            since, before = histories[key][0]
            seconds = (sample.at.mono_ns - since) / 1e9
            trips = tuple(seen.rtt_ms for _, seen in histories[key] if seen.rtt_ms is not None)
            ends[key] = SocketEnd(rank, connection, before, seconds, trips)
    found = [
        Link((end, other))
        for (local, remote), end in ends.items()
        if local < remote and (other := ends.get((remote, local))) and other.rank != end.rank
    ]
    found += _translated([e for (local, remote), e in ends.items() if (remote, local) not in ends])
    return sorted(found, key=lambda link: (sorted(link.ranks), link.ends[0].now.local))


def _translated(ends: Sequence[SocketEnd]) -> list[Link]:
    """Links between two hosts on whose way the address of who connected was replaced, not its port.

    Who was connected to sees a router's address (masquerading) in place of its peer's.  Where two
    ends could be the other half, none is taken.
    """
    by_port: dict[tuple[str, str], list[SocketEnd]] = {}
    claimed: dict[tuple[str, str], list[SocketEnd]] = {}
    for end in ends:
        if not end.now.remote.startswith(_LOOPBACK):
            by_port.setdefault((end.now.local, _port(end.now.remote)), []).append(end)
            claimed.setdefault((end.now.remote, _port(end.now.local)), []).append(end)
    return [
        Link((connected[0], accepted[0]))
        for key, connected in claimed.items()
        if len(connected) == 1
        and len(accepted := by_port.get(key, [])) == 1
        and accepted[0].rank != connected[0].rank
    ]


def _port(address: str) -> str:
    return address.rpartition(":")[2]


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


def _histories(
    samples: list[ConnectionSample],
) -> dict[tuple[str, str], list[tuple[int, Connection]]]:
    """Times when each connection was seen (monotonic nanoseconds), and its state then."""
    found: dict[tuple[str, str], list[tuple[int, Connection]]] = {}
    for sample in samples:
        for connection in sample.connections:
            key = connection.local, connection.remote
            found.setdefault(key, []).append((sample.at.mono_ns, connection))
    return found
