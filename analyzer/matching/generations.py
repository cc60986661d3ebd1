"""Generations of process groups: what is formed again bears the name of what was destroyed.

torch counts groups from 0 again once the default group is gone, so names return and numbers of
operations begin anew; ``pg_id`` counts on.  A group is its name, its members and its generation:
here former generations get names of their own, the newest of the job keeps the plain one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from hanglab.analyzer.flight_recorder.columns import ABSENT, Entries, GroupName, RankDump
from hanglab.analyzer.matching.merging import GroupKey, MergedSummaries, SignatureHistory, merge_all
from hanglab.analyzer.matching.summarising import summarise
from hanglab.analyzer.matching.summary import GroupSummary, RankSummary
from hanglab.analyzer.matching.thresholds import SAME_NUMBER_FARTHER

#: Names of groups, and what they are to be called.
NewNames = Mapping[str, str]


def own_name(name: str, pg_id: int) -> str:
    """Name of a rank's former generation until those of its peers are known."""
    return f"{name} (pg_id {pg_id})"


def split_generations(dump: RankDump) -> None:
    """Give each generation but the rank's last of each name a name of its own."""
    entries = dump.entries
    if entries is None or dump.former or len(set(dump.names.values())) == len(dump.names):
        return
    by_name: dict[str, list[int]] = {}
    for pg_id, name in dump.names.items():
        by_name.setdefault(name, []).append(pg_id)
    for name, pg_ids in by_name.items():
        firsts = _successive(entries, name, sorted(pg_ids))
        for pg_id, following in zip(sorted(pg_ids), firsts[1:], strict=False):
            set_apart(dump, name, own_name(name, pg_id), following)
            dump.names[pg_id] = own_name(name, pg_id)


def _successive(entries: Entries, name: str, pg_ids: list[int]) -> list[int]:
    """First row of each ``pg_id``; empty where they overlap, or where numbers do not begin anew.

    Then they are backends of one group, and no generations.
    """
    of_name = entries.in_group(name)
    rows = [np.flatnonzero(of_name & (entries.pg_id == pg_id)) for pg_id in pg_ids]
    for one, following in pairwise(rows):
        if one[-1] > following[0] or entries.op_id[following[0]] > entries.op_id[one[-1]]:
            return []
    return [int(mine[0]) for mine in rows]


def set_apart(dump: RankDump, name: str, own: str, following: int) -> None:
    """Give all rows of a name before row ``following``, a former generation of it, the name own."""
    if dump.entries is not None:
        entries = dump.entries
        rows = np.flatnonzero(entries.in_group(name)[:following])
        names, group = list(entries.group_names), entries.group.copy()
        for number in set(group[rows].tolist()):
            group[rows[group[rows] == number]] = len(names)
            names.append(GroupName(own, names[number].description))
        dump.entries = replace(entries, group=group, group_names=names)
    if name in dump.members:
        dump.members[own] = dump.members[name]
    if name in dump.descriptions:
        dump.descriptions[own] = dump.descriptions[name]
    dump.former[own] = name


def rename_groups(dump: RankDump, names: NewNames) -> None:
    """Give groups of a rank the names that the job's generations have."""
    if not names:
        return

    def new(name: str) -> str:
        return names.get(name, name)

    if dump.entries is not None:
        renamed = [GroupName(new(one.name), one.description) for one in dump.entries.group_names]
        dump.entries = replace(dump.entries, group_names=renamed)
    dump.members = {new(name): ranks for name, ranks in dump.members.items()}
    dump.descriptions = {new(name): text for name, text in dump.descriptions.items()}
    dump.names = {pg_id: new(name) for pg_id, name in dump.names.items()}
    dump.former = {new(name): plain for name, plain in dump.former.items()}


def summarise_generations(dump: RankDump) -> RankSummary:
    """Boil one rank's dump down, each generation of a group by itself."""
    split_generations(dump)
    return summarise(dump)


def merge_dumps(dumps: Iterable[RankDump]) -> MergedSummaries:
    """Summaries of dumps that are at hand, united; renames the generations in the dumps, too."""
    by_rank = {dump.rank: dump for dump in dumps}
    merged = merge_all(map(summarise_generations, by_rank.values()))
    for rank, names in align_generations(merged).items():
        rename_groups(by_rank[rank], names)
    return merged


@dataclass
class _Generation:
    """One generation of a name: the part of each rank that took part in it."""

    parts: dict[int, GroupSummary] = field(default_factory=dict)

    def apart_ns(self, part: GroupSummary) -> int:
        first = min(one.first_ns for one in self.parts.values())
        last = max(one.last_ns for one in self.parts.values())
        return max(first - part.last_ns, part.first_ns - last, 0)

    def shares_id(self, part: GroupSummary) -> bool:
        return any(one.pg_id == part.pg_id for one in self.parts.values())


def align_generations(merged: MergedSummaries) -> dict[int, dict[str, str]]:
    """New names by rank, of former generations; the summaries get them at once.

    Ranks take part in a generation at one time: they meet when they form it.  A ``pg_id`` counts
    the groups of its process, so it tells where times do not.
    """
    repeated = {name for summary in merged.ranks.values() for name in summary.former.values()}
    found: dict[int, dict[str, str]] = {}
    for name in sorted(repeated):
        lines = {rank: _line(summary, name) for rank, summary in merged.ranks.items()}
        generations: list[_Generation] = []
        for rank in sorted(lines, key=lambda rank: (-len(lines[rank]), rank)):
            _enter(generations, rank, lines[rank])
        for number, generation in enumerate(generations[:-1], 1):
            new = f"{name} (generation {number} of {len(generations)})"
            for rank, part in generation.parts.items():
                found.setdefault(rank, {})[part.name] = new
    if found:
        _rename(merged, found)
    return found


def _line(summary: RankSummary, name: str) -> list[GroupSummary]:
    """Generations of a name that a rank has used, in their order."""
    mine = {part.name: part for part in summary.parts if part.first_ns != ABSENT}
    own = [one for one, plain in summary.former.items() if plain == name]
    return [mine[one] for one in [*own, name] if one in mine]


def _enter(generations: list[_Generation], rank: int, line: list[GroupSummary]) -> None:
    """Enter a rank's generations of a name, in their order, among those that are known."""
    first = 0
    sure: list[int | None] = []
    for part in line:
        sure.append(_meeting(generations, first, part))
        first = first if sure[-1] is None else sure[-1] + 1
    first = 0
    for number, part in enumerate(line):
        place = sure[number]
        if place is None:
            end = next((one for one in sure[number:] if one is not None), len(generations))
            between = range(first, end)
            if between:
                place = min(between, key=lambda one: generations[one].apart_ns(part))
            else:
                place = end
                generations.insert(place, _Generation())
                sure = [one if one is None or one < place else one + 1 for one in sure]
        generations[place].parts[rank] = part
        first = place + 1


def _meeting(generations: list[_Generation], first: int, part: GroupSummary) -> int | None:
    """The generation, from ``first`` on, that a part belongs to by its time, else by its number.

    None where neither tells: nothing of them was made at its time.
    """
    places = range(first, len(generations))
    if not places:
        return None
    apart = {place: generations[place].apart_ns(part) for place in places}
    nearest = min(places, key=apart.__getitem__)
    alike = [place for place in places if generations[place].shares_id(part)]
    for place in alike:
        # Clocks of hosts differ; who counts from 0 as a new process is far from the first.
        if apart[place] <= SAME_NUMBER_FARTHER * apart[nearest]:
            return place
    return nearest if alike or not apart[nearest] else None


def _rename(merged: MergedSummaries, names: dict[int, dict[str, str]]) -> None:
    for rank, mine in names.items():
        summary = merged.ranks[rank]
        summary.former = {mine.get(name, name): plain for name, plain in summary.former.items()}
        for part in summary.parts:
            if part.name in mine:
                part.name, part.former = mine[part.name], True
    changed = {name for mine in names.values() for name in mine}
    for key in [key for key in merged.histories if key[0] in changed]:
        for history in merged.histories.pop(key):
            for new, part_of_it in _by_name(history, key, names):
                merged.enter(new, part_of_it)


def _by_name(
    history: SignatureHistory, key: GroupKey, names: dict[int, dict[str, str]]
) -> Iterable[tuple[GroupKey, SignatureHistory]]:
    """A history, by the new names of the group on the ranks that it is of."""
    windows: dict[str, dict[int, tuple[int, int]]] = {}
    for rank, window in history.windows.items():
        windows.setdefault(names.get(rank, {}).get(key[0], key[0]), {})[rank] = window
    for name, mine in windows.items():
        low, high = min(w[0] for w in mine.values()), max(w[1] for w in mine.values())
        codes = history.codes[low - history.base : high - history.base].copy()
        yield (name, key[1]), SignatureHistory(low, codes, mine)
