"""Filters of the table of entries that match nothing in the dumps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.tables.calls import Calls

#: Groups that are named in one note.
_NAMED = 8


@dataclass(frozen=True)
class EntryFilters:
    """The filters of a table, as :func:`entries.entries_table` takes them."""

    ranks: Collection[int] | None = None
    groups: Collection[str] | None = None
    seqs: tuple[int, int] | None = None
    stacks: bool = False
    only_unfinished: bool = False


def notes_on(
    asked: EntryFilters, dumps: Sequence[RankDump], calls: Calls, *, empty: bool
) -> list[str]:
    """One sentence for each thing that is not there; ``empty`` if no row is left to show."""
    notes = _on_ranks(asked, dumps, calls)
    notes += _on_groups(asked, calls)
    notes += _on_numbers(asked, calls)
    if asked.stacks and not any(calls.stacks):
        notes.append("The dumps hold no stacks: they were taken without.")
    if not empty or notes:
        return notes
    if not len(calls):
        return ["The dumps hold no entries: nothing was recorded, or only counts were dumped."]
    if asked.only_unfinished:
        return ["No call that was asked for is unfinished."]
    return ["No call fits all that was asked for."]


def _on_ranks(asked: EntryFilters, dumps: Sequence[RankDump], calls: Calls) -> list[str]:
    there = {dump.rank for dump in dumps}
    if asked.ranks is not None:
        absent = sorted(set(asked.ranks) - there)
        return [f"There is no dump of {_ranks(absent)}."] if absent else []
    members = {rank for group in calls.groups for rank in group.members or ()}
    absent = sorted(members - there)
    if not absent:
        return []
    return [f"There is no dump of {_ranks(absent)}, which the groups name as members."]


def _on_groups(asked: EntryFilters, calls: Calls) -> list[str]:
    known = {name for group in calls.groups for name in (group.name, group.description)}
    absent = [name for name in dict.fromkeys(asked.groups or ()) if name not in known]
    if not absent:
        return []
    labels = sorted({group.label for group in calls.groups})
    more = [f"{len(labels) - _NAMED} more"] if len(labels) > _NAMED else []
    wanted = ", ".join(repr(name) for name in absent)
    have = ", ".join([*labels[:_NAMED], *more]) or "none"
    return [f"No entry is of a group {wanted}; the groups that have entries: {have}."]


def _on_numbers(asked: EntryFilters, calls: Calls) -> list[str]:
    """A note where no call of the groups and ranks asked for has any of the numbers."""
    if asked.seqs is None:
        return []
    low, high = asked.seqs
    spans = []
    for number, group in enumerate(calls.groups):
        if asked.groups is not None and not {group.name, group.description} & set(asked.groups):
            continue
        mine = (calls.group == number) & ~calls.is_p2p & (calls.seq >= 0)
        if asked.ranks is not None:
            mine &= np.isin(calls.rank, list(asked.ranks))
        seqs = calls.seq[mine]
        if not len(seqs):
            continue
        if bool(((seqs >= low) & (seqs <= high)).any()):
            return []
        spans.append(f"{group.label} {_span(int(seqs.min()), int(seqs.max()))}")
    if not spans:
        return []
    more = [f"{len(spans) - _NAMED} more groups"] if len(spans) > _NAMED else []
    return [
        f"No recorded call has number {_span(low, high)}; those recorded: "
        f"{', '.join([*spans[:_NAMED], *more])}."
    ]


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"


def _ranks(ranks: Sequence[int]) -> str:
    """``rank 3``, ``ranks 0-3, 8``."""
    return f"rank{'s' if len(ranks) > 1 else ''} {ranks_text(ranks)}"


def ranks_text(ranks: Collection[int]) -> str:
    """``0-3, 8``"""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
