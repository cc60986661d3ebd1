"""Clocks of different hosts, laid over each other by operations that all leave together.

An operation that every member waits for lets them go at one moment, whoever
came last.  What the hosts' clocks say of that moment differs by their offset
(as in NTP, with the operation for a message).  The offset is followed over
time, as the median of the operations around, so that a drift and a jump of a
clock are followed too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from hanglab.analyzer.facts.aligned_collectives import AlignedCollectives, Timeline, Times
from hanglab.analyzer.facts.thresholds import CLOCK_FEWEST, CLOCK_WINDOW


@dataclass(frozen=True)
class Offset:
    """Offset of a host's clock to the reference host's, over time.

    ``at`` is on the host's own clock; both have shape (n,) and are nanoseconds.
    """

    at: Times
    offset: Times

    def align(self, times: Times) -> Times:
        moved: Times = times - np.interp(times, self.at, self.offset)
        return moved


@dataclass
class HostClocks:
    """Offsets by host.  Hosts of one domain can be compared, others cannot."""

    hosts: Mapping[int, str]
    offsets: dict[str, Offset | None] = field(default_factory=dict)
    #: Number of each host's domain.
    domains: dict[str, int] = field(default_factory=dict)

    def align(self, rank: int, times: Times) -> Times:
        """Times of the rank's host as its domain's reference host has them."""
        offset = self.offsets.get(self.hosts.get(rank, ""))
        return times if offset is None else offset.align(times)

    def domain(self, rank: int) -> int:
        return self.domains.get(self.hosts.get(rank, ""), 0)

    def domain_known(self, rank: int) -> bool:
        return self.hosts.get(rank, "") in self.domains


def host_clocks(collectives: Sequence[AlignedCollectives], hosts: Mapping[int, str]) -> HostClocks:
    """Offsets of all hosts to the first of each domain.  ``hosts`` is by rank."""
    clocks = HostClocks(hosts)
    waiting = sorted({hosts.get(rank, "") for m in collectives for rank in m.members})
    domain = 0
    while waiting:
        first = waiting.pop(0)
        rough = _rough_offset(collectives, clocks, first) if domain else None
        clocks.offsets[first], clocks.domains[first] = rough, domain
        known = [first]
        while known:
            reference = known.pop(0)
            for host in list(waiting):
                offset = _offset(collectives, clocks, reference, host)
                if offset is not None:
                    clocks.offsets[host], clocks.domains[host] = offset, domain
                    waiting.remove(host)
                    known.append(host)
        domain += 1
    return clocks


def _offset(
    collectives: Iterable[AlignedCollectives], clocks: HostClocks, reference: str, host: str
) -> Offset | None:
    """Offset of ``host`` to the domain's reference, by way of ``reference``."""
    at: list[Times] = []
    ahead: list[Times] = []
    for aligned in collectives:
        theirs = _left(aligned, clocks.hosts, reference)
        mine = _left(aligned, clocks.hosts, host)
        if theirs is None or mine is None:
            continue
        both = ~np.isnan(theirs) & ~np.isnan(mine)
        known = clocks.offsets.get(reference)
        reference_times = theirs[both] if known is None else known.align(theirs[both])
        at.append(mine[both])
        ahead.append(mine[both] - reference_times)
    if not at:
        return None
    moments, offsets = np.concatenate(at), np.concatenate(ahead)
    if len(moments) < CLOCK_FEWEST:
        return None
    order = np.argsort(moments, kind="stable")
    return Offset(moments[order], _running_median(offsets[order]))


def _rough_offset(
    collectives: Iterable[AlignedCollectives], clocks: HostClocks, host: str
) -> Offset | None:
    """Offset by the times of entry, for a host that nothing ties to the others.

    Too rough to tell who is late, and good enough to lay times side by side.
    """
    ahead = []
    for aligned in collectives:
        mine = [i for i, rank in enumerate(aligned.members) if clocks.hosts.get(rank, "") == host]
        theirs = [i for i, rank in enumerate(aligned.members) if clocks.domain_known(rank)]
        if mine and theirs:
            reference = [clocks.align(aligned.members[i], aligned.entered[:, i]) for i in theirs]
            ahead.append(aligned.entered[:, mine].min(axis=1) - np.min(reference, axis=0))
    if not ahead:
        return None
    return Offset(np.zeros(1), np.array([float(np.median(np.concatenate(ahead)))]))


def _left(aligned: AlignedCollectives, hosts: Mapping[int, str], host: str) -> Times | None:
    """Times at which the first of a host's members left each operation, shape (n,).

    The others may have waited for a processor.
    """
    mine = [i for i, rank in enumerate(aligned.members) if hosts.get(rank, "") == host]
    if not mine:
        return None
    left = aligned.left[:, mine]
    first: Times = np.where(np.isnan(left), np.inf, left).min(axis=1)
    return np.where(np.isinf(first), np.nan, first)


def _running_median(values: npt.NDArray[np.float64]) -> Times:
    """Median of the CLOCK_WINDOW values around each; a jump stays a jump."""
    half = CLOCK_WINDOW // 2
    padded = np.concatenate([values[:1].repeat(half), values, values[-1:].repeat(half)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, CLOCK_WINDOW)
    smooth: Times = np.median(windows, axis=1)
    return smooth


def on_common_clocks(times: Timeline, clocks: HostClocks) -> list[AlignedCollectives]:
    """Collectives on common clocks; members whose hosts cannot be compared are kept apart."""
    result = []
    for aligned in times.collectives:
        domains = sorted({clocks.domain(rank) for rank in aligned.members})
        for domain in domains:
            columns = [i for i, rank in enumerate(aligned.members) if clocks.domain(rank) == domain]
            if len(columns) < 2:
                continue
            members = [aligned.members[i] for i in columns]
            entered = np.stack(
                [clocks.align(aligned.members[i], aligned.entered[:, i]) for i in columns], axis=1
            )
            left = np.stack(
                [clocks.align(aligned.members[i], aligned.left[:, i]) for i in columns], axis=1
            )
            result.append(replace(aligned, members=members, entered=entered, left=left))
    return result
