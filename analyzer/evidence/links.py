"""TCP connections seen from both ends: which halves belong together, and how each stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hanglab.analyzer.evidence.model import RankView
from hanglab.recorder.case.surroundings import Connection, ConnectionSample


@dataclass(frozen=True)
class End:
    """A rank's half of a connection: at the capture, and in its first sample where it has one."""

    rank: int
    now: Connection
    before: Connection | None
    #: Time between the two samples.
    seconds: float

    def grown(self, name: str) -> float:
        """By how much a counter has grown between the samples; 0 where it was not read."""
        old = getattr(self.before, name) if self.before is not None else None
        new = getattr(self.now, name)
        return max(0.0, new - old) if new is not None and old is not None else 0.0


@dataclass(frozen=True)
class Link:
    """Both ends of one connection between two ranks."""

    ends: tuple[End, End]

    @property
    def ranks(self) -> tuple[int, int]:
        return self.ends[0].rank, self.ends[1].rank

    @property
    def directions(self) -> tuple[tuple[End, End], tuple[End, End]]:
        """(sender, receiver), both ways."""
        return self.ends, (self.ends[1], self.ends[0])


def latest(samples: list[ConnectionSample]) -> ConnectionSample | None:
    """The sample of the latest capture, else the last one."""
    captured = [sample for sample in samples if sample.capture]
    return (captured or samples)[-1] if samples else None


def links_of(views: Mapping[int, RankView]) -> list[Link]:
    """Connections of which both ends were sampled, in different ranks."""
    ends: dict[tuple[str, str], End] = {}
    for rank, view in views.items():
        sample = latest(view.connections)
        if sample is None:
            continue
        first = view.connections[0]
        seconds = (sample.at.mono_ns - first.at.mono_ns) / 1e9
        before = {(c.local, c.remote): c for c in first.connections} if seconds > 0 else {}
        for connection in sample.connections:
            key = connection.local, connection.remote
            ends[key] = End(rank, connection, before.get(key), seconds)
    found = []
    for (local, remote), end in ends.items():
        other = ends.get((remote, local))
        if other is not None and local < remote and other.rank != end.rank:
            found.append(Link((end, other)))
    return sorted(found, key=lambda link: (sorted(link.ranks), link.ends[0].now.local))
