"""Divergences of a job: members of a group that do not do the same, and who of them deviates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

from hanglab.analyzer.flight_recorder.columns import Arguments
from hanglab.analyzer.graph.difference_labels import calls_since, label_by_lines, label_by_shift
from hanglab.analyzer.graph.lines_of_branches import holds_up_nobody
from hanglab.analyzer.graph.sibling_groups import settle_by_siblings
from hanglab.analyzer.graph.thresholds import SINGLE_ARGUMENTS, USUAL_CALLS
from hanglab.analyzer.graph.waits import OpenOperations
from hanglab.analyzer.matching.all_to_all_sizes import find_size_mismatch
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.calls import Call, Difference, Divergence, ProcessGroup
from hanglab.analyzer.matching.claimed_roots import find_root_conflict
from hanglab.analyzer.matching.divergence import find_divergences
from hanglab.analyzer.matching.groups import GroupTable
from hanglab.analyzer.matching.issue_order import find_rank_ahead
from hanglab.analyzer.matching.lines_elsewhere import label_by_lines_elsewhere
from hanglab.analyzer.matching.merging import MergedSummaries
from hanglab.analyzer.matching.sequences import Sequences, sequences_of
from hanglab.analyzer.matching.signatures import ARGUMENT_DIFFERENCES, call_site, difference
from hanglab.recorder.case.operations import op_of


def divergences_of(
    merged: MergedSummaries, group_table: GroupTable, lookup: CallLookup
) -> tuple[list[Divergence], dict[int, int], list[Divergence]]:
    """Divergences that may hold somebody up, their numbers by group, and the silent ones."""
    table = merged.table()
    exchanging = {
        group_table.places[rank, pending.part]
        for rank, summary in merged.ranks.items()
        for pending in summary.pending
        if op_of(pending.op).splits
    }
    rooted = {
        group_table.places[rank, pending.part]
        for rank, summary in merged.ranks.items()
        for pending in summary.pending
        if op_of(pending.op).rooted
    }
    found: list[Divergence] = []
    silent: list[Divergence] = []
    places: dict[int, int] = {}
    by_group: dict[ProcessGroup, Sequences] = {}
    for place, group in enumerate(group_table.groups):
        if group.doubtful or group.misnamed:
            continue
        sequences = by_group[group.group] = sequences_of(merged, group, table)
        stuck = any(progress.unfinished for progress in group.progress.values())
        divergences = find_divergences(sequences, lookup, stuck=stuck)
        if divergences.first is not None and holds_up_nobody(
            divergences.first, merged, group_table, lookup
        ):
            divergences = find_divergences(sequences, lookup, stuck=False)
        silent += [one for one in divergences.silent if _proves_to_be_silent(merged, one)]
        divergence = divergences.first
        if divergence is None and stuck and place in exchanging:
            divergence = find_size_mismatch(group, lookup)
        if divergence is None and stuck and place in rooted:
            divergence = find_root_conflict(group, lookup)
        if divergence is not None:
            divergence.away = tuple(
                rank
                for rank, progress in sorted(group.progress.items())
                if progress.has_entered(divergence.seq) is False and not merged.ranks[rank].pending
            )
            found.append(divergence)
            places[place] = divergence.seq
    for divergence in found:
        label_by_lines_elsewhere(divergence, by_group)
    return found, places, silent


def _proves_to_be_silent(merged: MergedSummaries, divergence: Divergence) -> bool:
    """False where gloo's own buffer alone tells: it calls finished what failed, too."""
    numbered = {
        rank: summary.parts
        for rank in divergence.calls
        if (summary := merged.ranks[rank]).silent_p2p
        and any(part.gloo for part in summary.parts if part.name == divergence.group.name)
    }
    return all(
        any(
            part.name == divergence.group.name and part.base + part.length > divergence.seq + 1
            for part in parts
        )
        for parts in numbered.values()
    )


def settle(
    divergences: list[Divergence],
    silent: Sequence[Divergence],
    group_table: GroupTable,
    waits: OpenOperations,
    lookup: CallLookup,
) -> None:
    """Name who deviates where other groups, or the rank's own order, tell.

    Of several differences of one rank the first that it came to stays: the others follow from it.
    """
    for divergence in divergences:
        settle_by_siblings(divergence, group_table, lookup)
        _settle_by_other_groups(divergence, group_table, waits)
        if not divergence.deviating and len(divergence.candidates) == 2:
            _settle_by_issue_order(divergence, lookup)
    for divergence in [*divergences, *silent]:
        if not divergence.deviating and divergence.difference in ARGUMENT_DIFFERENCES:
            _settle_by_usual_arguments(divergence, lookup)
    for divergence in divergences:
        label_by_shift(divergence, lookup)
        label_by_lines(divergence, lookup)
    _settle_by_proved([*divergences, *silent])
    _leave_out_consequences(divergences, lookup)


def _settle_by_usual_arguments(divergence: Divergence, lookup: CallLookup) -> None:
    """Of two the one whose line never else calls with these arguments, where its peer's often does.

    Neither is the minority, but one did what it does in each round.
    """
    if len(divergence.candidates) != 2 or divergence.unknown_calls or divergence.unlisted:
        return
    value = ARGUMENT_DIFFERENCES[divergence.difference]
    usual: list[int] = []
    new: list[int] = []
    wide = _go_on_alike(divergence, lookup)
    for rank in divergence.candidates:
        call = divergence.calls.get(rank)
        index = lookup.index_of(rank, divergence.group.name, divergence.seq)
        others = None if call is None else _other_arguments(call, index, lookup, wide=wide)
        if call is None or others is None:
            return
        known = Counter[Hashable]()
        for one, count in others.items():
            known[value(call.op, one)] += count
        same = known[value(call.op, call.arguments)]
        if same >= USUAL_CALLS:
            usual.append(rank)
        elif not same and SINGLE_ARGUMENTS * [*known.values()].count(1) < known.total():
            new.append(rank)  # Else data give them: a further one of its own is nothing new.
    if len(new) == len(usual) == 1:
        divergence.deviating, divergence.candidates = tuple(new), ()


def _go_on_alike(divergence: Divergence, lookup: CallLookup) -> bool:
    """True if both candidates made the same calls of the group later on, under the same numbers.

    Else one of them may have come to another phase, whose calls are new.
    """
    one, other = (calls_since(divergence, rank, lookup) for rank in divergence.candidates)
    later = (one.keys() & other.keys()) - {divergence.seq}
    return bool(later) and all(one[number] == other[number] for number in later)


def _other_arguments(
    call: Call, index: int, lookup: CallLookup, *, wide: bool
) -> Counter[Arguments] | None:
    """Arguments of the other calls of the operation from a call's line on its group.

    If ``wide``, of all on its group where the line is not known, or made few; None for too few.
    """
    entries, site = lookup.entries(call.rank), call_site(call.stack)
    if entries is None or index < 0:
        return None
    mine = entries.in_group(call.group.name) & ~entries.is_p2p
    mine[index] = False
    stacks = [number for number, one in enumerate(entries.stacks) if call_site(one) == site]
    of_line = np.flatnonzero(mine & np.isin(entries.stack, stacks)).tolist()
    of_group = np.flatnonzero(mine).tolist() if wide else []
    for rows in (of_line if site is not None else [], of_group):
        found = Counter(
            entries.arguments_at(row) for row in rows if entries.operation_at(row).op == call.op
        )
        if found.total() >= USUAL_CALLS:
            return found
    return None


def _settle_by_issue_order(divergence: Divergence, lookup: CallLookup) -> None:
    name, seq = divergence.group.name, divergence.seq
    rank_ahead = find_rank_ahead(
        {rank: lookup.index_of(rank, name, seq) for rank in divergence.candidates},
        lookup,
    )
    if rank_ahead is not None:
        divergence.deviating, divergence.candidates = (rank_ahead,), ()
        # It jumped ahead in its own order: what it left out, its peer does.
        divergence.skipped = divergence.difference in (
            Difference.OPERATION,
            Difference.CALL_SITE,
        )


def _settle_by_other_groups(
    divergence: Divergence, group_table: GroupTable, waits: OpenOperations
) -> None:
    """Let the order of other groups decide where the group alone cannot.

    A member that waits for a candidate in another operation, and has yet to come
    here, does that operation first; the candidate came here first (or put it
    behind, on its device).
    """
    if divergence.deviating:
        return
    group = next(g for g in group_table.groups if g.group == divergence.group)
    late = {
        rank
        for rank, progress in group.progress.items()
        if progress.has_entered(divergence.seq) is False
    }
    against = {
        rank
        for waiting in waits.operations.values()
        if waiting.seq is not None and not late.isdisjoint(waiting.leaders)
        for rank in (*waiting.absent, *waiting.behind)
        if rank in divergence.calls
    }
    rest = [call for rank, call in divergence.calls.items() if rank not in against]
    if divergence.unknown_calls and len(against) > len(rest):
        return
    if against and rest and all(difference(rest[0], c, sites=False) is None for c in rest):
        divergence.deviating = tuple(sorted(against))
        divergence.candidates = ()


def _settle_by_proved(divergences: Sequence[Divergence]) -> None:
    """Let a rank that is proved to deviate in one group be the one that does in another.

    One wrong rank explains both; its only peer there need not be another.
    """
    proved = {rank for divergence in divergences for rank in divergence.deviating}
    for divergence in divergences:
        mine = proved.intersection(divergence.candidates)
        if divergence.deviating or len(mine) != 1:
            continue
        rest = [call for rank, call in divergence.calls.items() if rank not in mine]
        if rest and all(difference(rest[0], c, sites=False) is None for c in rest):
            divergence.deviating, divergence.candidates = tuple(mine), ()


def _leave_out_consequences(divergences: list[Divergence], lookup: CallLookup) -> None:
    by_rank: dict[tuple[int, ...], list[Divergence]] = {}
    for divergence in divergences:
        if len(divergence.deviating) == 1:
            by_rank.setdefault(divergence.deviating, []).append(divergence)
    for (rank,), mine in by_rank.items():
        issued = [lookup.index_of(rank, one.group.name, one.seq) for one in mine]
        if len(mine) > 1 and min(issued) >= 0:
            first = mine[issued.index(min(issued))]
            divergences[:] = [one for one in divergences if one is first or one not in mine]
