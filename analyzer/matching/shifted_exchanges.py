"""The member whose exchanges are all one number off: moved by one, what all give is what all take.

Only all members together tell sizes of an all_to_all that the data gives, and only whether they
fit.  Behind one of a wrong size they do again; those of a rank that has left one out, or has made
one too many, fit if all are moved, more of them than would by chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.matching.groups import ResolvedGroup
from hanglab.analyzer.matching.thresholds import COMPARED_EXCHANGES, FITTING_BY_CHANCE
from hanglab.recorder.case.operations import op_of


class ShiftedMember(NamedTuple):
    """A member, and whether it left an exchange out; else it made one too many."""

    rank: int
    left_out: bool


@dataclass(frozen=True)
class _Excesses:
    """Elements that each member takes more than it gives, by number: all together none."""

    members: Sequence[int]
    by_number: Mapping[int, Mapping[int, int]]

    def fit(self, number: int, rank: int, shift: int) -> bool | None:
        """True if all take what all give, with that of a rank from ``shift`` numbers off.

        None where it is not known.
        """
        here, there = self.by_number.get(number, {}), self.by_number.get(number + shift, {})
        if rank not in there or len(here) - (rank in here) < len(self.members) - 1:
            return None
        return self._sums[number] - here.get(rank, 0) + there[rank] == 0

    @cached_property
    def _sums(self) -> dict[int, int]:
        return {number: sum(one.values()) for number, one in self.by_number.items()}

    def count_fits(self, seq: int, rank: int, shift: int) -> int:
        """Numbers from ``seq`` on that fit if a rank's calls are moved; 0 if one does not."""
        first = seq + 1 if shift < 0 else seq  # What it left out is under no number of its own.
        found = [self.fit(number, rank, shift) for number in self.by_number if number >= first]
        return 0 if False in found else found.count(True)

    def chance(self, seq: int) -> float:
        """The share of earlier numbers that would fit if the calls of one rank were moved."""
        found = [
            self.fit(number, rank, shift)
            for number in self.by_number
            for rank in self.members
            for shift in (-1, 1)
            if max(number, number + shift) < seq
        ]
        return (found.count(True) + 0.5) / (len(found) - found.count(None) + 1)


def find_shifted_member(group: ResolvedGroup, lookup: CallLookup, seq: int) -> ShiftedMember | None:
    """The one member whose exchanges fit from ``seq`` on if all are moved by one number."""
    window = range(max(1, seq - COMPARED_EXCHANGES), seq + COMPARED_EXCHANGES + 1)
    by_number: dict[int, dict[int, int]] = {}
    for number in window:
        calls = {rank: lookup.collective(rank, group, number) for rank in group.members}
        found = {r: _excess(call) for r, call in calls.items() if call is not None}
        by_number[number] = {rank: one for rank, one in found.items() if one is not None}
    # Who takes as much as it gives, as all do, fits anywhere.
    uneven = {number: one for number, one in by_number.items() if any(one.values())}
    excesses = _Excesses(group.members, uneven)
    first, *_ = group.members
    if any(excesses.fit(number, first, 0) for number in uneven if number > seq):
        return None  # They have not parted: one size alone is wrong.
    told = [
        (ShiftedMember(rank, left_out=shift < 0), fits)
        for rank in group.members
        for shift in (-1, 1)
        if (fits := excesses.count_fits(seq, rank, shift))
    ]
    if len(told) != 1:
        return None
    ((member, fits),) = told
    by_chance = 2 * len(group.members) * excesses.chance(seq) ** fits
    return member if by_chance <= FITTING_BY_CHANCE or _is_off_by_one(group, member) else None


def _is_off_by_one(group: ResolvedGroup, member: ShiftedMember) -> bool:
    """True if a member alone has entered one less than all others, as it left one out, or more."""
    entered = {rank: one.entered for rank, one in group.progress.items()}
    others = {entered.get(rank) for rank in group.members if rank != member.rank}
    own = entered.get(member.rank)
    return own is not None and others == {own + 1 if member.left_out else own - 1}


def _excess(call: Call) -> int | None:
    """Elements that a call takes more than it gives; None of what is no exchange, or not known."""
    given, taken = call.arguments.input_sizes, call.arguments.output_sizes
    if not (op_of(call.op).splits and given and taken):
        return None
    return sum(map(prod, taken)) - sum(map(prod, given))
