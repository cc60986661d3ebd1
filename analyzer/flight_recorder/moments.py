"""Times of a dump in a few numbers: from when to when it tells, and samples to compare by."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT, Bool, Entries, Int64, RankDump

#: Samples of one dump: numbers that a power of two divides, so that dumps share them.
SAMPLES = 16

_DEFAULT_NAME = "0"
_DEFAULT_DESCRIPTION = "default_pg"


@dataclass(frozen=True)
class Moments:
    """Wall clock of the rank's host, nanoseconds; ABSENT or empty where the dump has none."""

    first_ns: int = ABSENT
    last_ns: int = ABSENT
    first_record: int = ABSENT
    last_record: int = ABSENT
    #: Creation of some entries, and what they are, by the number of their record.
    records: dict[int, tuple[int, str]] = field(default_factory=dict)
    #: Creation of some collectives of the group of all ranks, and what they are, by sequence
    #: number.
    steps: dict[int, tuple[int, str]] = field(default_factory=dict)
    #: Hash of the members of the group of all ranks, and how many; 0 where no list tells.
    world: int = 0
    world_size: int = 0
    #: Operations that its groups' statuses count as issued, all together; ABSENT without statuses.
    counted: int = ABSENT
    #: As finished, likewise.
    ended: int = ABSENT

    @classmethod
    def of(cls, dump: RankDump) -> Moments:
        members = _world(dump)
        world = hash(members) if members else 0
        counted = ended = ABSENT
        if dump.status:
            counted = sum(one.enqueued or 0 for one in dump.status.values())
            ended = sum(one.completed or 0 for one in dump.status.values())
        entries = dump.entries
        if entries is None or not len(entries):
            return cls(world=world, world_size=len(members), counted=counted, ended=ended)
        timed = entries.created_ns > 0
        numbered = timed & (entries.record_id >= 0)
        records = entries.record_id[numbered]
        return cls(
            first_ns=int(entries.created_ns[timed].min()) if timed.any() else ABSENT,
            last_ns=last_event_ns(entries),
            first_record=int(records[0]) if len(records) else ABSENT,
            last_record=int(records[-1]) if len(records) else ABSENT,
            records={
                number: (int(entries.created_ns[row]), entries.operation_at(row).op)
                for number, row in _samples(entries.record_id, np.flatnonzero(numbered))
            },
            steps=_steps(entries, timed),
            world=world,
            world_size=len(members),
            counted=counted,
            ended=ended,
        )


def last_event_ns(entries: Entries) -> int:
    """Time of the newest event that the entries know of; ABSENT without times."""
    columns = (entries.created_ns, entries.started_ns, entries.completed_ns)
    newest = max(int(column.max()) for column in columns)
    return newest if newest > 0 else ABSENT


def _world(dump: RankDump) -> tuple[int, ...]:
    named = dump.members.get(_DEFAULT_NAME)
    if named:
        return named
    for name, members in dump.members.items():
        if dump.descriptions.get(name) == _DEFAULT_DESCRIPTION:
            return members
    return ()


def _steps(entries: Entries, timed: Bool) -> dict[int, tuple[int, str]]:
    default = [
        index
        for index, group in enumerate(entries.group_names)
        if group.name == _DEFAULT_NAME or group.description == _DEFAULT_DESCRIPTION
    ]
    if not default:
        return {}
    rows = timed & ~entries.is_p2p & (entries.seq >= 0) & (entries.group == default[0])
    return {
        seq: (int(entries.created_ns[row]), entries.operation_at(row).op)
        for seq, row in _samples(entries.seq, np.flatnonzero(rows))
    }


def _samples(numbers: Int64, rows: Int64) -> list[tuple[int, int]]:
    """The latest of ``rows`` whose numbers are multiples of one power of two, by number."""
    stride = 1
    while len(rows) > SAMPLES * stride:
        stride *= 2
    chosen = rows[numbers[rows] & (stride - 1) == 0][-SAMPLES:]
    return list(zip(numbers[chosen].tolist(), chosen.tolist(), strict=True))
