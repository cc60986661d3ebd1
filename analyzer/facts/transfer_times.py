"""Times of transfers between the devices of two ranks, by their Flight Recorder buffers.

Both ends time a transfer, and the end that began first has its wait for the other in its time.  One
of the two began last, so at least half of the transfers between two ranks are bare on one of the
ends: that end's lower quartile is the time of a transfer.  Whatever else delays one now and then (a
processor that is busy, other traffic) only adds to it, so of a slow link even the quickest tenth is
slow.  Neither clocks nor numbers of operations are compared.  Times are torch's ``duration_ms``,
which TORCH_NCCL_ENABLE_TIMING switches on; members of a batch have none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hanglab.analyzer.facts.case_facts import CaseFacts, once
from hanglab.analyzer.facts.thresholds import FEWEST_TRANSFERS, QUICK_SHARE
from hanglab.analyzer.flight_recorder.columns import ABSENT, Arguments, Float64, RankDump
from hanglab.analyzer.matching.entry_queries import distinct
from hanglab.analyzer.matching.signatures import comparable_dtypes, numels

#: What two transfers have in common that should take as long: the operation that moves the data,
#: and the numbers of elements and types of its tensors.
Kind = tuple[str, int, tuple[str, ...] | None]


@dataclass(frozen=True)
class Transfers:
    """Transfers of one kind from rank ``source`` to ``target``; of a collective of two both ways.

    ``typical_ms`` is the time of one, ``quick_ms`` what the quickest tenth of them take at most,
    ``busy_ms`` the time of all that the buffers still have.
    """

    source: int
    target: int
    kind: Kind
    typical_ms: float
    quick_ms: float
    busy_ms: float

    @property
    def ranks(self) -> frozenset[int]:
        return frozenset({self.source, self.target})


@once
def transfers(facts: CaseFacts) -> list[Transfers]:
    """All transfers that both ends have timed often enough."""
    timed: defaultdict[tuple[int, int, Kind], dict[int, Float64]] = defaultdict(dict)
    for rank, dump in facts.dumps.items():
        for source, target, kind, times in _timed(dump):
            key = (source, target, kind)
            timed[key][rank] = np.concatenate([timed[key].get(rank, np.empty(0)), times])
    found = []
    for (source, target, kind), ends in timed.items():
        number = min((len(times) for times in ends.values()), default=0)
        if set(ends) == {source, target} and number >= FEWEST_TRANSFERS:
            typical, quick = (
                min(float(np.quantile(times, share)) for times in ends.values())
                for share in (0.25, QUICK_SHARE)
            )
            found.append(Transfers(source, target, kind, typical, quick, typical * number))
    return found


def observed_ms(facts: CaseFacts, rank: int) -> float:
    """Time from the first to the last operation that the rank's buffer has, in milliseconds."""
    dump = facts.dumps.get(rank)
    entries = dump.entries if dump is not None else None
    if entries is None or not len(entries):
        return 0.0
    created = entries.created_ns[entries.created_ns != ABSENT]
    return float(created.max() - created.min()) / 1e6 if len(created) else 0.0


def _timed(dump: RankDump) -> Iterator[tuple[int, int, Kind, Float64]]:
    """Source, target, kind and times of what was done with one other rank."""
    entries = dump.entries
    if entries is None:
        return
    rows = np.flatnonzero(~np.isnan(entries.duration_ms))
    operations = entries.group[rows].astype(np.int64) * len(entries.operations)
    operations += entries.operation[rows]
    _, alike = distinct(operations * len(entries.arguments) + entries.argument[rows])
    for number in range(int(alike.max(initial=-1)) + 1):
        mine = rows[alike == number]
        first = int(mine[0])
        members = dump.members.get(entries.group_at(first), ())
        operation = entries.operation_at(first)
        if operation.spec.p2p:
            source, target, name = operation.src, operation.dst, "message"
        else:
            source, target, name = 0, 1, operation.op
        if (not operation.spec.p2p and len(members) != 2) or source == target:
            continue
        if 0 <= source < len(members) and 0 <= target < len(members):
            kind = (name, *_data(entries.arguments_at(first)))
            yield members[source], members[target], kind, entries.duration_ms[mine]


def _data(arguments: Arguments) -> tuple[int, tuple[str, ...] | None]:
    """Elements of the largest tensor, as both ends name it, and types."""
    elements = numels(arguments.input_sizes) + numels(arguments.output_sizes)
    return max(elements, default=0), comparable_dtypes(arguments)
