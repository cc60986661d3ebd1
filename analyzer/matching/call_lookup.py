"""The second look: calls with arguments and stacks, of those ranks only that matter."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT, Entries, RankDump
from hanglab.analyzer.matching.calls import Call, ProcessGroup
from hanglab.analyzer.matching.groups import GroupProgress, ResolvedGroup
from hanglab.analyzer.matching.summary import P2PChannel, Pending
from hanglab.recorder.case.operations import op_of


class DumpSource(Protocol):
    """Reads ranks' dumps once more; None, or no entry, for what cannot be had."""

    def __call__(self, rank: int) -> RankDump | None: ...

    def many(self, ranks: Collection[int]) -> Mapping[int, RankDump]: ...


class DumpsInMemory:
    """A second look at dumps that are at hand."""

    def __init__(self, dumps: Mapping[int, RankDump]) -> None:
        self._dumps = dumps

    def __call__(self, rank: int) -> RankDump | None:
        return self._dumps.get(rank)

    def many(self, ranks: Collection[int]) -> Mapping[int, RankDump]:
        return {rank: self._dumps[rank] for rank in ranks if rank in self._dumps}


class CallLookup:
    """Reads each rank at most once, and none but those that it is asked for."""

    def __init__(self, dump_source: DumpSource | Callable[[int], RankDump | None]) -> None:
        self._dump_source = dump_source
        self._dumps: dict[int, RankDump | None] = {}

    def prefetch(self, ranks: Iterable[int]) -> None:
        """Read many ranks in one go where the second look can."""
        wanted = [rank for rank in dict.fromkeys(ranks) if rank not in self._dumps]
        many = getattr(self._dump_source, "many", None)
        if len(wanted) > 1 and many is not None:
            found = many(wanted)
            self._dumps.update((rank, found.get(rank)) for rank in wanted)

    def dump(self, rank: int) -> RankDump | None:
        if rank not in self._dumps:
            self._dumps[rank] = self._dump_source(rank)
        return self._dumps[rank]

    def entries(self, rank: int) -> Entries | None:
        dump = self.dump(rank)
        if dump is None or dump.entries is None or not len(dump.entries):
            return None
        return dump.entries

    def at(self, rank: int, index: int, group: ProcessGroup, *, completed: bool) -> Call | None:
        """The call of the entry at ``index``."""
        entries = self.entries(rank)
        if entries is None or not 0 <= index < len(entries):
            return None
        operation = entries.operation_at(index)
        created = int(entries.created_ns[index])
        p2p = bool(entries.is_p2p[index]) or operation.spec.p2p
        peer: int | None = None
        if p2p:
            known = 0 <= operation.peer < len(group.members)
            peer = group.members[operation.peer] if known else None
        return Call(
            rank=rank,
            group=group,
            seq=None if p2p else int(entries.seq[index]),
            op=operation.op,
            arguments=entries.arguments_at(index),
            stack=entries.stack_at(index),
            created_ns=created if created > 0 else None,
            peer=peer,
            tag=operation.tag,
            completed=completed,
        )

    def index_of(self, rank: int, name: str, seq: int) -> int:
        """Index in the rank's ring of a group's collective; ABSENT if it is not there."""
        entries = self.entries(rank)
        if entries is None:
            return ABSENT
        rows = np.flatnonzero(entries.in_group(name) & (entries.seq == seq) & ~entries.is_p2p)
        return int(rows[-1]) if len(rows) else ABSENT

    def collective(self, rank: int, resolved: ResolvedGroup, seq: int) -> Call | None:
        """The rank's call under a sequence number; None if its ring does not hold it."""
        index = self.index_of(rank, resolved.group.name, seq)
        if index == ABSENT:
            return None
        progress = resolved.progress.get(rank, GroupProgress(None))
        return self.at(rank, index, resolved.group, completed=progress.finished(seq))

    def message(
        self, rank: int, resolved: ResolvedGroup, channel: P2PChannel, position: int
    ) -> Call | None:
        """The rank's call of a channel that its ring holds from the first message on."""
        entries = self.entries(rank)
        if entries is None:
            return None
        fitting = [
            number
            for number, one in enumerate(entries.operations)
            if one.spec.sends == channel.sends
            and one.spec.p2p
            and (one.src, one.dst, one.tag) == (channel.src, channel.dst, channel.tag)
        ]
        of_group = entries.in_group(resolved.group.name)
        rows = np.flatnonzero(np.isin(entries.operation, fitting) & of_group)
        if position >= len(rows):
            return None
        done = position not in channel.open
        return self.at(rank, int(rows[position]), resolved.group, completed=done)

    def pending(self, rank: int, pending: Pending, group: ProcessGroup) -> Call:
        """The call of an unfinished operation, as well as it is known."""
        call = None
        if pending.index != ABSENT:
            call = self.at(rank, pending.index, group, completed=False)
        return call or plain_call(rank, pending, group)


def plain_call(rank: int, pending: Pending, group: ProcessGroup) -> Call:
    """A call without arguments and stack, from what the summary has."""
    other = pending.dst if op_of(pending.op).sends else pending.src
    peer = None
    if pending.seq is None and 0 <= other < len(group.members):
        peer = group.members[other]
    return Call(rank, group, pending.seq, pending.op, peer=peer, tag=pending.tag)
