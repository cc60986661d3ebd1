"""Operations side by side, around the first place at which ranks do not do the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from hanglab.analyzer.facts.case_facts import CaseFacts
from hanglab.analyzer.flight_recorder import Loaded
from hanglab.analyzer.flight_recorder.columns import RankDump
from hanglab.analyzer.flight_recorder.concatenation import reordered
from hanglab.analyzer.tables.entries import CallCell, EntriesTable, Row, entries_table
from hanglab.analyzer.verdict import Verdict
from hanglab.harness.report.page.records import RankClass, SideBySide, SideCell, SideRow
from hanglab.harness.report.rank_ranges import named
from hanglab.harness.report.timeline.building import dumps_of

#: Operations before and after the place.
BEFORE, AFTER = 4, 4
#: Ranks that are laid side by side; of more, some of each class.
MOST_COLUMNS = 64


def side_by_side(
    facts: CaseFacts, verdict: Verdict, classes: Sequence[RankClass]
) -> SideBySide | None:
    """The operations of one group around the first difference, or around what is open.

    None where no dump has an entry of a collective.
    """
    place = _place(facts, verdict)
    if place is None:
        return None
    group_id, members, seq, title = place
    ranks = _chosen(members, verdict, classes)
    first, last = max(0, seq - BEFORE), seq + AFTER
    dumps = [
        part
        for rank, dump in sorted(dumps_of(facts, ranks).items())
        if (part := _part(dump, group_id, first, last)) is not None
    ]
    if not dumps:
        return None
    table = entries_table(Loaded(dumps=dumps), stacks=True, mismatch_cap=None)
    return _folded(table, ranks, members, title, facts)


def _place(facts: CaseFacts, verdict: Verdict) -> tuple[str, tuple[int, ...], int, str] | None:
    graph = facts.graph
    open_ones = [one for one in graph.divergences if not one.finished] or graph.divergences
    if open_ones:
        found = open_ones[0]
        label = found.group.description or found.group.name
        title = f"Where ranks first differ: #{found.seq} of {label}"
        return found.group.name, found.group.members, found.seq, title
    call = verdict.collective
    if call is not None and call.seq is not None:
        label = call.group or call.group_id
        title = f"Around #{call.seq} of {label}, which the verdict is about"
        return call.group_id, tuple(call.ranks), call.seq, title
    calls = [one for rank in sorted(graph.unfinished) for one in graph.unfinished[rank]]
    calls += [call for _, call in sorted(graph.last_calls.items())]
    for one in calls:
        if one.seq is not None:
            label = one.group.description or one.group.name
            title = f"The latest operations of {label}, up to #{one.seq}"
            return one.group.name, one.group.members, one.seq, title
    return None


def _chosen(members: Iterable[int], verdict: Verdict, classes: Sequence[RankClass]) -> list[int]:
    inside = set(members)
    if len(inside) <= MOST_COLUMNS:
        return sorted(inside)
    order = [rank for rank in verdict.culprits if rank in inside]
    for place in range(MOST_COLUMNS):
        of_classes = [[rank for rank in one.ranks if rank in inside] for one in classes]
        order += [ranks[place] for ranks in of_classes if len(ranks) > place]
    return sorted(list(dict.fromkeys(order))[:MOST_COLUMNS])


def _part(dump: RankDump, group_id: str, first: int, last: int) -> RankDump | None:
    """The dump with the entries of one group and some numbers, and its status."""
    entries = dump.entries
    if entries is None:
        return None
    inside = entries.in_group(group_id) & ~entries.is_p2p
    inside &= (entries.seq >= first) & (entries.seq <= last)
    part = RankDump(rank=dump.rank, source=dump.source)
    for name, value in vars(dump).items():
        setattr(part, name, value)
    part.posted = part.held = frozenset()
    part.entries = reordered(entries, np.flatnonzero(inside))
    return part


def _folded(
    table: EntriesTable,
    ranks: Sequence[int],
    members: Sequence[int],
    title: str,
    facts: CaseFacts,
) -> SideBySide:
    """Equal columns become one."""
    columns: dict[tuple[object, ...], list[int]] = {}
    for rank in table.ranks:
        columns.setdefault(tuple(row.cells.get(rank) for row in table.rows), []).append(rank)
    ordered = sorted(columns.values(), key=lambda of: (-len(of), of[0]))
    result = SideBySide(title=title, columns=[named(of) for of in ordered])
    for row in table.rows:
        cells = [_cell(row, of[0], table, facts) for of in ordered]
        result.rows.append(
            SideRow(
                seq=row.seq,
                group=row.group.label,
                difference=row.difference.value.replace("_", " ") if row.difference else "",
                cells=cells,
            )
        )
    without = sorted(set(ranks) - set(table.ranks))
    if without and not table.notes:
        result.notes.append(f"{named(without).capitalize()} left no dump.")
    if len(ranks) < len(set(members)):
        result.notes.append(
            f"{len(ranks)} of {len(set(members))} members are shown: some of each class."
        )
    result.notes += table.notes
    return result


def _cell(row: Row, rank: int, table: EntriesTable, facts: CaseFacts) -> SideCell:
    cell = row.cells.get(rank)
    if not isinstance(cell, CallCell):
        return SideCell(text=cell.value if cell is not None else "", state="absent")
    frame = None
    if cell.stack is not None:
        frame = facts.ranks[rank].code.innermost_user(table.stacks[cell.stack])
    base = frame.file.rsplit("/", 1)[-1] if frame is not None else ""
    sizes = " ".join(
        f"{list(size)} {dtype}"
        for size, dtype in zip(
            cell.arguments.input_sizes, cell.arguments.input_dtypes, strict=False
        )
    )
    root = f" root {cell.arguments.root}" if cell.arguments.root is not None else ""
    return SideCell(
        text=f"{cell.operation.op} {sizes}{root}".strip(),
        place=f"{base}:{frame.line} ({frame.function})" if frame is not None else "",
        state="finished" if cell.finished else "not finished",
        differs=cell.deviates,
    )
