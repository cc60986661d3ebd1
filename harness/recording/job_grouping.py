"""Ranks of a host, joined into jobs, in whatever containers they are.

Ranks of one container that say the same of their job are one job's.  Those of several containers
are joined by more than words, as every tutorial's job meets at ``localhost:29500``: by a connection
between them, by the store that they are connected with, by Slurm's step, or by a store's address
that means the same in all networks.  Where a doubt is left they stay apart: half a job told as a
whole one is told as what it is, and ranks of two jobs are an accusation of somebody who has
nothing to do with it.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from hanglab.harness.recording.job_identity import JobIdentity, Process, identity_of
from hanglab.harness.recording.rank_sockets import (
    RankSocket,
    ends_of_store,
    sockets_of,
    store_named,
)
from hanglab.recorder.attach.tree import FoundRank
from hanglab.recorder.system import procfs

#: Ranks that nothing but an address joins began within so many seconds: a leftover of an earlier
#: job at that address is older.
_NEAR_S = 300.0

#: Share of a core for reading connections: to list those of a network the kernel goes through all.
_SHARE = 0.005

Key = tuple[object, ...]
Member = tuple[FoundRank, JobIdentity]


@dataclass(eq=False)
class _Unit:
    """Ranks that are one job's without a doubt."""

    key: Key
    members: list[Member]

    @property
    def identity(self) -> JobIdentity:
        """Of its lowest rank."""
        return min((one for _, one in self.members), key=lambda one: one.rank)

    @property
    def ranks(self) -> list[int]:
        return [rank.rank for rank, _ in self.members]

    @property
    def processes(self) -> list[Process]:
        return [one.process for _, one in self.members]

    @property
    def incomplete(self) -> bool:
        """True if the job has ranks elsewhere, as it says itself."""
        return (self.identity.world_size or 0) > len(self.members)

    def sockets(self) -> list[RankSocket]:
        return sockets_of([pid for pid, _ in self.processes], self.identity.network)


class JobGrouping:
    """Remembers who was seen connected: a network that is cut parts no job."""

    def __init__(self) -> None:
        self._identities: dict[Process, JobIdentity] = {}
        self._linked: set[tuple[Process, Process]] = set()
        self._due_s = float("-inf")

    def group(self, ranks: Iterable[FoundRank]) -> dict[Key, list[FoundRank]]:
        """Jobs by keys that stay the same over restarts within the same containers."""
        units = [
            unit for near in self._neighbours(ranks).values() for unit in _without_doubles(near)
        ]
        joined = _Joined(units)
        self._join(joined, units)
        found = {}
        for units in joined.groups():
            lowest = min(units, key=lambda unit: unit.identity.rank)
            found[lowest.key] = [rank for unit in units for rank, _ in unit.members]
        return found

    def _neighbours(self, ranks: Iterable[FoundRank]) -> Mapping[Key, list[Member]]:
        found: dict[Key, list[Member]] = defaultdict(list)
        living: dict[Process, JobIdentity] = {}
        for rank in ranks:
            if (stat := procfs.stat(rank.pid)) is not None:
                process = rank.pid, stat.started
                # What it said first: an orphan has a new parent, and not a new job.
                identity = self._identities.get(process) or identity_of(rank, stat)
                living[process] = identity
                found[identity.neighbourhood].append((rank, identity))
        self._identities = living
        self._linked = {pair for pair in self._linked if living.keys() >= {*pair}}
        return found

    def _join(self, joined: _Joined, units: Sequence[_Unit]) -> None:
        of_process = {one.process: unit for unit in units for _, one in unit.members}
        for first, second in self._linked:
            joined.unite([of_process[first], of_process[second]])
        alike: dict[Hashable, list[_Unit]] = defaultdict(list)
        for unit in units:
            if unit.incomplete:
                alike[unit.identity.signature].append(unit)
        apart = [
            candidates
            for candidates in alike.values()
            if len({id(joined.group_of(unit)) for unit in candidates}) > 1
        ]
        if time.monotonic() >= self._due_s:
            begun_s = time.thread_time()
            for candidates in apart:
                self._join_connected(joined, candidates)
            self._due_s = time.monotonic() + (time.thread_time() - begun_s) / _SHARE
        for candidates in apart:
            self._join_named(joined, candidates)

    def _join_connected(self, joined: _Joined, units: Sequence[_Unit]) -> None:
        """Joins those of some units with the same words that are connected."""
        sockets = {unit: unit.sockets() for unit in units}
        for group in _with_the_same(units, lambda unit: _stores(unit, sockets[unit])):
            self._link(joined, group)
        # After the stores: a trainer may be connected with an engine that has one of its own.
        for group in _connected_groups(units, sockets):
            self._link(joined, group)

    def _join_named(self, joined: _Joined, units: Sequence[_Unit]) -> None:
        for group in _with_the_same(units, _steps):
            self._link(joined, group)
        for group in _with_the_same(units, _named_stores):
            starts = [one.started_s for unit in group for _, one in unit.members]
            if max(starts) - min(starts) <= _NEAR_S:
                joined.unite(group)

    def _link(self, joined: _Joined, units: Sequence[_Unit]) -> None:
        if joined.unite(units):
            for one, other in combinations(units, 2):
                self._linked |= {*product(one.processes, other.processes)}


class _Joined:
    """Units in groups, none of which has a rank twice."""

    def __init__(self, units: Iterable[_Unit]) -> None:
        self._groups = {unit: [unit] for unit in units}

    def group_of(self, unit: _Unit) -> list[_Unit]:
        return self._groups[unit]

    def groups(self) -> list[list[_Unit]]:
        return list({id(group): group for group in self._groups.values()}.values())

    def unite(self, units: Sequence[_Unit]) -> bool:
        """All or none: who claims a rank that another one is, is another job's, or all are."""
        parts = {id(self._groups[unit]): self._groups[unit] for unit in units}
        whole = [unit for part in parts.values() for unit in part]
        ranks = [rank for unit in whole for rank in unit.ranks]
        if len(ranks) > len({*ranks}) or len(ranks) > (whole[0].identity.world_size or 0):
            return False
        self._groups.update(dict.fromkeys(whole, whole))
        return True


def _without_doubles(members: Sequence[Member]) -> list[_Unit]:
    """One unit, or several where a rank is there twice."""
    key = members[0][1].neighbourhood
    if not _doubles(members):
        return [_Unit(key, list(members))]
    parts: dict[Key, list[Member]] = defaultdict(list)
    for rank, one in members:
        own = (*key, one.attempt, one.parent, rank.case)
        parts[own].append((rank, one))
    found = []
    for own, part in parts.items():
        if _doubles(part):
            found += [_Unit((*own, one.process), [(rank, one)]) for rank, one in part]
        else:
            found.append(_Unit(own, part))
    return found


def _doubles(members: Sequence[Member]) -> bool:
    return Counter(rank.rank for rank, _ in members).most_common(1)[0][1] > 1


def _connected(one: Sequence[RankSocket], other: Sequence[RankSocket]) -> bool:
    return not {socket.ours for socket in one}.isdisjoint(socket.theirs for socket in other)


def _connected_groups(
    units: Sequence[_Unit], sockets: Mapping[_Unit, Sequence[RankSocket]]
) -> list[list[_Unit]]:
    """Units that are connected, directly or by others."""
    groups: list[list[_Unit]] = []
    for unit in units:
        whole, apart = [unit], []
        for group in groups:
            near = any(
                _connected(sockets[unit], sockets[other]) and _may_meet(unit, other)
                for other in group
            )
            if near:
                whole += group
            else:
                apart.append(group)
        groups = [*apart, whole]
    return [group for group in groups if len(group) > 1]


def _may_meet(one: _Unit, other: _Unit) -> bool:
    """False if they meet at different stores.

    Some operators tell the store's own container ``localhost``, and all others its name.
    """
    first, second = one.identity.address, other.identity.address
    return first == second or "" in (first, second) or any(map(_is_local, (first, second)))


def _is_local(address: str) -> bool:
    end = store_named(address, 0, "here")
    return end is not None and end[0] == "here"


def _with_the_same(
    units: Sequence[_Unit], words_of: Callable[[_Unit], Iterable[Hashable]]
) -> list[list[_Unit]]:
    """Units that have a word in common, two at least."""
    found: dict[Hashable, list[_Unit]] = defaultdict(list)
    for unit in units:
        for word in words_of(unit):
            found[word].append(unit)
    return [group for group in found.values() if len(group) > 1]


def _stores(unit: _Unit, sockets: Sequence[RankSocket]) -> Iterable[Hashable]:
    port = unit.identity.port
    return ends_of_store(sockets, int(port)) if port.isdecimal() else ()


def _steps(unit: _Unit) -> Iterable[Hashable]:
    """Slurm's own number of the step, which no other job on the cluster has."""
    one = unit.identity
    if not all(one.names[3:]):
        return ()
    return [(one.address, one.network if _is_local(one.address) else "")]


def _named_stores(unit: _Unit) -> Iterable[Hashable]:
    one = unit.identity
    end = store_named(one.address, int(one.port), one.network) if one.port.isdecimal() else None
    return [end] if end is not None else ()
