"""The member whose exchanges are all one number off: moved by one, what all give is what all take.

Only all members together tell sizes of an all_to_all that the data gives, and only whether they
fit.  One of a wrong size fits under no other number, those of a rank that has left one out, or has
made one too many, all do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
        others = [here.get(member) for member in self.members if member != rank]
        mine = there.get(rank)
        if mine is None or None in others:
            return None
        return mine + sum(one for one in others if one is not None) == 0

    def fits_shifted(self, seq: int, rank: int, shift: int) -> bool:
        """True if from ``seq`` on all fit if a rank's are moved, and hardly any did before it."""
        first = seq + 1 if shift < 0 else seq  # What it left out is under no number of its own.
        found = [self.fit(number, rank, shift) for number in self.by_number if number >= first]
        before = [
            self.fit(number, rank, shift)
            for number in self.by_number
            if max(number, number + shift) < seq
        ]
        known = len(before) - before.count(None)
        chance = known * FITTING_BY_CHANCE
        return True in found and False not in found and known > 0 and before.count(True) <= chance


def find_shifted_member(group: ResolvedGroup, lookup: CallLookup, seq: int) -> ShiftedMember | None:
    """The one member whose exchanges fit from ``seq`` on if all are moved by one number."""
    window = range(max(1, seq - COMPARED_EXCHANGES), seq + COMPARED_EXCHANGES + 1)
    by_number: dict[int, dict[int, int]] = {}
    for number in window:
        calls = {rank: lookup.collective(rank, group, number) for rank in group.members}
        found = {r: _excess(call) for r, call in calls.items() if call is not None}
        by_number[number] = {rank: one for rank, one in found.items() if one is not None}
    excesses = _Excesses(group.members, by_number)
    told = [
        ShiftedMember(rank, left_out=shift < 0)
        for rank in group.members
        for shift in (-1, 1)
        if excesses.fits_shifted(seq, rank, shift)
    ]
    return told[0] if len(told) == 1 else None


def _excess(call: Call) -> int | None:
    """Elements that a call takes more than it gives; None of what is no exchange, or not known."""
    given, taken = call.arguments.input_sizes, call.arguments.output_sizes
    if not (op_of(call.op).splits and given and taken):
        return None
    return sum(map(prod, taken)) - sum(map(prod, given))
