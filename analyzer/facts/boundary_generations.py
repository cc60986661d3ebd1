"""Generations of process groups in what the Python boundary saw.

A call tells the number that its group gave before it: where a thread's numbers fall, the group
has been formed again since.  Sends and receives of gloo are in no buffer, and take theirs from
here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.matching.generations import own_name, set_apart, split_generations
from hanglab.recorder.case.progress_records import OperationCall


def calls_by_generation(dump: RankDump, calls: Sequence[OperationCall]) -> Sequence[OperationCall]:
    """The calls, under the names of their groups' generations; splits those in the dump, too."""
    split_generations(dump)
    formed = _formed_again(calls)
    if not (formed or dump.former):
        return calls
    names: dict[str, list[str]] = {}
    for own, name in dump.former.items():
        names.setdefault(name, []).append(own)
    starts: dict[str, list[int]] = {}
    for name, mine in names.items():
        starts[name] = _starts(dump, [*mine[1:], name], formed.get(name, ()))
    for name in formed.keys() - names.keys():
        starts[name] = formed[name]
        names[name] = [own_name(name, -number) for number in range(1, len(formed[name]) + 1)]
        for own, start in zip(names[name], formed[name], strict=True):
            set_apart(dump, name, own, _row_at(dump, start))
    return [
        replace(call, group=[*names[call.group], call.group][_place(starts[call.group], call)])
        if call.group in names
        else call
        for call in calls
    ]


def _formed_again(calls: Sequence[OperationCall]) -> dict[str, list[int]]:
    """Times of the first calls in groups that were formed again, by their name."""
    found: dict[str, list[int]] = {}
    last: dict[tuple[str, int], tuple[int, int]] = {}
    for call in calls:
        if call.group_seq is None:
            continue
        key = call.group, call.thread_id
        generation = len(found.get(call.group, ()))
        before, number = last.get(key, (generation, -1))
        if before == generation and call.group_seq < number:
            found.setdefault(call.group, []).append(call.entered_ns)
            generation += 1
        last[key] = generation, call.group_seq
    return found


def _starts(dump: RankDump, names: Sequence[str], formed: Sequence[int]) -> list[int]:
    """Times when each generation but the first began: its first entry, or an earlier call of it."""
    entries = dump.entries
    assert entries is not None
    starts = []
    for name in names:
        rows = np.flatnonzero(entries.in_group(name))
        first = int(entries.created_ns[rows[0]])
        plain = dump.former.get(name, name)
        alike = {plain, *(own for own, one in dump.former.items() if one == plain)}
        of_name = np.any([entries.in_group(one) for one in alike], axis=0)
        earlier = entries.created_ns[: rows[0]][of_name[: rows[0]]]
        low = int(earlier.max()) if len(earlier) else 0
        starts.append(min((one for one in formed if low < one <= first), default=first))
    return starts


def _place(starts: Sequence[int], call: OperationCall) -> int:
    """Number of the call's generation: its first call makes the first entry."""
    if call.returned_ns is None:
        return len(starts)
    return bisect_right(starts, call.returned_ns)


def _row_at(dump: RankDump, time_ns: int) -> int:
    if dump.entries is None:
        return 0
    return int(np.searchsorted(dump.entries.created_ns, time_ns))
