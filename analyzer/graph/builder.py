"""From ranks' dumps to the wait-for graph: match, see who waits for whom, and where it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hanglab.analyzer.flight_recorder.columns import ABSENT, RankDump
from hanglab.analyzer.graph.any_source import narrow_sources
from hanglab.analyzer.graph.batches import hold_up_batches
from hanglab.analyzer.graph.calls_of_ranks import CallsOfRanks
from hanglab.analyzer.graph.departure_finder import DepartureFinder
from hanglab.analyzer.graph.divergences import divergences_of, settle
from hanglab.analyzer.graph.ended_otherwise import (
    ended_in_pairs,
    find_ended_otherwise,
    withdraw_unseen_stops,
)
from hanglab.analyzer.graph.job_steps import label_by_steps
from hanglab.analyzer.graph.left_out_rounds import name_left_out_collectives
from hanglab.analyzer.graph.message_balance import (
    find_messages_after_the_last,
    find_unmatched_messages,
)
from hanglab.analyzer.graph.met_messages import met_messages
from hanglab.analyzer.graph.misdirected_messages import find_misdirected
from hanglab.analyzer.graph.new_channels import find_stray_messages
from hanglab.analyzer.graph.progressing_ranks import find_progressing, without_state_of
from hanglab.analyzer.graph.queued_messages import hold_up_queued_messages
from hanglab.analyzer.graph.rings import RingReader
from hanglab.analyzer.graph.roots import WaitRoots, end_is_lost, find_roots, may_hide, reaching
from hanglab.analyzer.graph.shifted_messages import without_shifted
from hanglab.analyzer.graph.single_calls import (
    added_calls,
    calls_on_wrong_group,
    crossed_messages,
    mismatched_messages,
    shown_departure,
    unanswered_calls,
    unmatched_calls,
)
from hanglab.analyzer.graph.sinks import confirm, sink_of, sink_of_device
from hanglab.analyzer.graph.stopped_device import StoppedDevice, ends_alone, find_stopped_device
from hanglab.analyzer.graph.thread_turns import label_thread_turns
from hanglab.analyzer.graph.thresholds import (
    COMPARED_ORDERS,
    FULL_RANKS,
    LISTED_OPERATIONS,
    SMALL,
)
from hanglab.analyzer.graph.wait_for_graph import Sink, Unmatched, WaitForGraph
from hanglab.analyzer.graph.waits import OpenOperations, find_waits
from hanglab.analyzer.matching.call_lookup import CallLookup, DumpsInMemory, DumpSource
from hanglab.analyzer.matching.calls import ProcessGroup
from hanglab.analyzer.matching.generations import merge_dumps
from hanglab.analyzer.matching.groups import GroupTable, ResolvedGroup, resolve
from hanglab.analyzer.matching.merging import MergedSummaries
from hanglab.analyzer.matching.message_mismatches import find_message_mismatches
from hanglab.analyzer.wording import (
    Need,
    need_dump,
    need_later_dump,
    need_stack,
    need_whole_dump,
)
from hanglab.analyzer.worlds.thresholds import LONGEST_IDLE_NS


def build_wait_for_graph(
    dumps: Iterable[RankDump], *, expected: Sequence[int] | None = None
) -> WaitForGraph:
    """The wait-for graph of a job whose dumps are all at hand.

    ``expected`` are the global ranks that the job should have; without it, the
    ranks that the dumps name.
    """
    by_rank: dict[int, RankDump] = {}
    for dump in dumps:
        by_rank.setdefault(dump.rank, dump)
    merged = merge_dumps(by_rank.values())
    return graph_of_summaries(merged, DumpsInMemory(by_rank), expected=expected)


def graph_of_summaries(
    merged: MergedSummaries,
    dump_source: DumpSource | Callable[[int], RankDump | None],
    *,
    expected: Sequence[int] | None = None,
    progressing: Iterable[int] = (),
) -> WaitForGraph:
    """The wait-for graph of a job from its united summaries.

    ``dump_source`` reads a rank's dump once more; it is asked for few ranks in
    large jobs, and may return None.  Where it has a method ``many``, that is
    asked for several ranks at once.  ``progressing`` are ranks whose dumps are known to show them
    on their way.
    """
    group_table = resolve(merged, expected)
    if _anything_open(group_table, merged):
        progressing = {*progressing, *find_progressing(merged, group_table)}
    moving = sorted(progressing)
    if moving:
        merged = without_state_of(merged, moving)
        group_table = resolve(merged, expected)
    builder = _Builder(merged, group_table, CallLookup(dump_source), moving)
    return builder.build()


def _anything_open(group_table: GroupTable, merged: MergedSummaries) -> bool:
    return any(summary.pending for summary in merged.ranks.values()) or any(
        progress.unfinished for group in group_table.groups for progress in group.progress.values()
    )


class _Builder:
    def __init__(
        self,
        merged: MergedSummaries,
        group_table: GroupTable,
        lookup: CallLookup,
        progressing: list[int],
    ) -> None:
        self._progressing = progressing
        self._merged = merged
        self._group_table = group_table
        self._lookup = lookup
        self._calls = CallsOfRanks(merged, group_table, lookup)
        self._departures = DepartureFinder(merged, group_table, lookup)

    def build(self) -> WaitForGraph:
        merged, group_table, lookup = self._merged, self._group_table, self._lookup
        divergences, places, silent = divergences_of(merged, group_table, lookup)
        mismatches = find_message_mismatches(merged, group_table)
        waits = find_waits(merged, group_table, places, mismatches)
        hold_up_queued_messages(waits)
        hold_up_batches(waits)
        narrow_sources(merged, waits)
        settle(divergences, silent, group_table, waits, lookup)
        strays = list(find_stray_messages(waits, group_table.groups))
        departure = self._departures.find(divergences, waits)
        self._departures.label_silent(silent)
        label_by_steps(divergences, lookup)
        label_thread_turns(divergences, lookup)
        on_wrong_group = calls_on_wrong_group(divergences, waits, group_table.groups, self._calls)
        added = added_calls(waits, self._calls)
        misdirected = find_misdirected(mismatches, merged, waits)
        met = [one.messages for one in misdirected if one.messages.messages]
        unmatched = [one for one in strays if one.deviating is not None]
        unmatched = unmatched or [one for one in met if not one.shifted]
        unmatched = unmatched or find_unmatched_messages(waits, group_table, lookup)
        unmatched = unmatched or [one for one in met if one.shifted]
        unmatched = unmatched or strays
        astray = {one.deviating for one in unmatched if one.deviating is not None}
        astray |= {rank for cycle in on_wrong_group for rank in cycle.deviating}
        if departure is not None and astray and departure.rank not in astray:
            departure = None  # What lacks a half, or was called elsewhere, is no guess from orders.
        for message in (message for one in unmatched for message in one.messages):
            message.explained = True
        ended = [] if unmatched or departure else list(ended_in_pairs(waits, self._calls))
        unseen = withdraw_unseen_stops(waits, lookup)
        roots = find_roots(merged, waits)
        # Messages pair up otherwise than the program has it from the fault on: a ring through one
        # of its ranks is what follows.
        departed = {rank for one in unmatched for rank in one.ends}
        roots.cycles = [one for one in roots.cycles if departed.isdisjoint(one.places)]
        for end in roots.ends:
            confirm(end, waits, lookup)
        away = any(end.kind == "outside" for end in roots.ends)
        for end in roots.ends:
            if away and end.kind == "stopped":
                # A dump that is older than its peers' looks like this, and who is away explains
                # the rest alone.
                end.kind = "unknown"
            # Several that wait for nobody may wait for each other in what leaves no entry.
            if end.rank in group_table.silent_p2p:
                end.hidden = end.hidden or group_table.uses_p2p or len(roots.ends) > 1
        graph = WaitForGraph(
            ranks=tuple(sorted(merged.ranks)),
            emulated=any(summary.emulated for summary in merged.ranks.values()),
            expected=group_table.expected,
            groups=[group.group for group in group_table.groups],
            divergences=divergences,
            silent_mismatches=silent,
            mismatched_messages=mismatched_messages(
                without_shifted(
                    [m for m in mismatches if not any(m is one.mismatch for one in misdirected)]
                ),
                lookup,
            ),
            added=added,
            lookup=lookup,
            lone_steps=self._departures.lone_steps(self._calls),
            open=tuple(roots.open),
            progressing=tuple(self._progressing),
            world_size_unknown=group_table.world_size_unknown,
            empty=group_table.empty,
            silent_p2p=group_table.silent_p2p,
            name_conflicts=group_table.name_conflicts,
            idle=frozenset(
                rank
                for rank, summary in merged.ranks.items()
                if rank not in waits.by_rank and summary.informative and not may_hide(summary)
            ),
            broken_off=frozenset(r for r, summary in merged.ranks.items() if summary.truncated),
            lost_ends=frozenset(r for r, one in merged.ranks.items() if end_is_lost(one)),
            idle_s=_idle_s(merged),
            no_entries=all(summary.last == ABSENT for summary in merged.ranks.values()),
            copied=_unrecorded_since_unknown(merged),
            behind=tuple(sorted(set().union(*map(_members_behind, group_table.groups)))),
            incomplete=any(map(_lacks_somebody, group_table.groups))
            or any(map(may_hide, merged.ranks.values())),
            agreed=_agreed(group_table),
        )
        important = {end.rank for end in roots.ends if end.kind != "unknown"}
        important.update(rank for divergence in divergences for rank in divergence.deviating)
        important.update(rank for cycle in on_wrong_group for rank in cycle.deviating)
        important.update(call.rank for call in added)
        important = set(sorted(important)[:FULL_RANKS])
        lookup.prefetch(sorted(important)[:FULL_RANKS])
        everybody = reaching(waits, important) if len(roots.ends) > SMALL else set()
        graph.sinks = [sink_of(end, waits, everybody, self._calls) for end in roots.ends]
        told = bool(divergences or on_wrong_group or added or unmatched or departure or ended)
        last = None if told else ends_alone(waits)
        stopped = None if told else last or self._stopped_device(roots, waits)
        rings = RingReader(merged, group_table.groups, self._calls, self._departures)
        if departure is not None and not any(one.deviating for one in divergences):
            graph.departures = [shown_departure(departure, self._calls)]
            graph.divergences = []
            graph.sinks, graph.open = [], ()
        elif stopped is not None and stopped.unstarted:
            # Whatever those do of whom nothing is known, it holds its peers up.
            graph.sinks, graph.open = [], ()
        else:
            rings.read(roots, important, waits)
            graph.cycles = [*rings.cycles, *on_wrong_group]
            graph.unmatched = [*rings.unmatched, *unmatched_calls(unmatched, waits, self._calls)]
            graph.sinks += [
                sink_of(end, waits, everybody, self._calls) for end in rings.stopped_hosts
            ]
        if stopped is None and not (departure or divergences or roots.ends or roots.cycles):
            graph.cycles += crossed_messages(waits, self._calls)
        if stopped is None and not (told or graph.cycles or graph.unmatched or graph.sinks):
            left = find_messages_after_the_last(waits, group_table, lookup)
            graph.unmatched += unmatched_calls(left, waits, self._calls)
        if stopped is None and not (told or graph.cycles or graph.unmatched or graph.sinks):
            graph.unmatched += unanswered_calls(
                self._merged, waits, self._calls, self._departures.left_own_order_at
            )
        if not (told or graph.cycles or graph.unmatched):
            self._blame_who_waits_out_of_turn(graph, waits)
        told = told or bool(graph.cycles or graph.unmatched or graph.sinks)
        if not (graph.departures or graph.divergences):
            self._settle_messages_by_siblings(graph)
            graph.unmatched = list(name_left_out_collectives(graph.unmatched, waits, self._calls))
        if stopped is None and not (told or self._progressing):
            ended = list(find_ended_otherwise(waits, self._calls))
        graph.ended_otherwise = ended
        alone = len(waits.by_rank) < 2 and last is None  # Nobody waits for it.
        if stopped is not None and not alone and not (roots.cycles and not stopped.unstarted):
            graph.sinks.append(sink_of_device(stopped, waits, self._calls))
        for sink in graph.sinks:
            sink.passed_by = self._departures.orders.passed_by(sink.rank, graph.idle)
            sink.disputed_by = self._departures.orders.disputed_by(sink.rank, sink.victims)
            sink.untold = self._is_untold(sink, waits)
            sink.unseen = sink.stopped_device and sink.rank in unseen
        self._show(graph, waits, important)
        graph.stalled = [
            self._calls.wait(min(waiting.waiters), waiting, waits, self._calls.small)
            for waiting in roots.stalled
        ]
        graph.open = tuple(sorted({*graph.open, *rings.undecided}))
        ends = {sink.rank for sink in graph.sinks if sink.unknown or sink.hidden}
        graph.needs = [self._deciding_evidence(rank) for rank in sorted(ends | rings.undecided)]
        return graph

    def _blame_who_waits_out_of_turn(self, graph: WaitForGraph, waits: OpenOperations) -> None:
        """Let a message tell of the one that waits in it, if it is in none of its own rounds.

        Those that have nothing open kept theirs, and may be through.  Another one waits for it, as
        in each round: else its rounds may be over.
        """
        ends = {sink.rank for sink in graph.sinks}
        awaited = [o for o in waits.operations.values() if not ends.isdisjoint(o.absent)]
        waiters = {rank for one in awaited for rank in one.waiters}
        if len(waiters) != 1 or any(one.seq is not None for one in awaited):
            return
        (rank,) = waiters
        missed = any(
            rank in {*waiting.absent, *waiting.behind}
            for other in waits.by_rank.keys() - {rank}
            for waiting in waits.first(other)
        )
        if not missed or not all(sink.outside or sink.unknown for sink in graph.sinks):
            return
        first = min(awaited, key=lambda one: one.waiters[rank].order)
        places = {end: self._merged.ranks[end].last for end in ends if end in self._merged.ranks}
        if len(places) < len(ends):
            return  # Of who left no dump nobody knows the rounds.
        places[rank] = first.waiters[rank].index
        if self._departures.left_own_order_alone(places, by_new=True) != rank:
            return
        if not self._departures.has_known_rounds(rank, places[rank]):
            return
        call = self._calls.call(rank, first.waiters[rank], first.group.group, full=True)
        graph.unmatched = [Unmatched(call, None, (rank,))]
        graph.sinks, graph.open = [], ()

    def _settle_messages_by_siblings(self, graph: WaitForGraph) -> None:
        """Let other replicas tell which end of a message, or whose turn in a ring, is wrong."""
        tied = [(one.ends, (one.call.rank,)) for one in graph.unmatched if not one.deviating]
        rings = [(one.ranks, one.ranks) for one in graph.cycles if one.p2p]
        for ranks, waiting in (*tied, *rings):
            departure = self._departures.find_among_siblings(ranks, waiting)
            if departure is not None:
                graph.departures = [shown_departure(departure, self._calls)]
                graph.unmatched = [u for u in graph.unmatched if departure.rank not in u.ends]
                graph.cycles = [c for c in graph.cycles if departure.rank not in c.ranks]
                return

    def _is_untold(self, sink: Sink, waits: OpenOperations) -> bool:
        """True if a rank alone waits for a sink in what need not be its turn."""
        few = len(self._group_table.expected) <= COMPARED_ORDERS  # Of more no order is read.
        if not (few and sink.outside) or sink.elsewhere:
            return False
        waiting = [
            (rank, operation.waiters[rank])
            for rank in waits.by_rank
            for operation in waits.first(rank)
            if sink.rank in operation.absent
        ]
        batch = all(pending.seq is None for _, pending in waiting)
        if any(one.finished for one in waits.operations.values() if sink.rank in one.absent):
            return False  # A third has been to what it was to come to.
        if (
            len({(rank, pending.order) for rank, pending in waiting}) != 1
            or len(waiting) > 1 > batch
        ):
            return False  # What is in one batch has one order.
        waiter, index = waiting[0][0], waiting[0][1].index
        if any(
            sink.rank in operation.absent
            for rank in waits.by_rank.keys() - {waiter}
            for _, operation in waits.held(rank)
        ):
            return False  # A third waits for it, behind what it waits in.
        if len(self._group_table.expected) > 2:
            return self._departures.may_repeat(waiter, index)
        return not self._departures.keeps_own_order(waiter, len(waiting))

    def _stopped_device(self, roots: WaitRoots, waits: OpenOperations) -> StoppedDevice | None:
        """The device that stopped, where all ends of waits are of ranks of whom nothing is known.

        With such an end only a device that has not begun what nothing holds up is proof.
        """
        if any(end.kind != "unknown" for end in roots.ends):
            return None
        stopped = find_stopped_device(self._merged, waits, self._lookup)
        return None if stopped is None or (roots.ends and not stopped.unstarted) else stopped

    def _show(self, graph: WaitForGraph, waits: OpenOperations, important: set[int]) -> None:
        """Enter what each rank has open, what it waits for, and what it did last."""
        graph.uncounted = frozenset(
            rank
            for rank, mine in waits.by_rank.items()
            if any(w.seq is None and not (w.certain or w.explained) for _, w in mine)
        )
        for rank in sorted(self._merged.ranks):
            mine = waits.by_rank.get(rank, [])
            full = self._calls.small or rank in important
            graph.unfinished[rank] = [
                self._calls.call(rank, pending, waiting.group.group, full)
                for pending, waiting in mine[: LISTED_OPERATIONS if full else 1]
            ]
            for waiting in waits.first(rank):
                graph.waits.append(self._calls.wait(rank, waiting, waits, full))
            if rank not in waits.stopped:
                graph.exchanged[rank] = frozenset(p.index for p, w in mine if w.exchanged)
                if self._calls.small:
                    met = met_messages(rank, self._group_table.groups, self._lookup)
                    graph.exchanged[rank] = graph.exchanged[rank].union(met)
            if full:
                last = self._calls.last(rank)
                if last is not None:
                    graph.last_calls[rank] = last

    def _deciding_evidence(self, rank: int) -> Need:
        if rank in self._progressing:
            return need_later_dump(rank)
        if rank not in self._merged.ranks:
            return need_dump(rank)
        if end_is_lost(self._merged.ranks[rank]):
            return need_whole_dump(rank)
        return need_stack(rank)


def _idle_s(merged: MergedSummaries) -> float:
    """Seconds without anything that any rank did, where all were idle; else 0."""
    found = [summary.activity for summary in merged.ranks.values() if not summary.empty]
    if not found:
        return 0.0
    if all(one.idle for one in found):
        return min(one.quiet_ns for one in found) / 1e9
    # Dumps that are older than the others tell of nothing since.
    known = [one for one in found if one.quiet_ns != ABSENT]
    if len(known) < len(found) or not any(one.idle for one in known):
        return 0.0
    quiet = max(one.written_ns for one in known) - max(o.written_ns - o.quiet_ns for o in known)
    return quiet / 1e9 if quiet >= max(LONGEST_IDLE_NS, *(o.pause_ns for o in known)) else 0.0


def _unrecorded_since_unknown(merged: MergedSummaries) -> bool:
    """True if no file has its time, and ranks may be in groups of which no buffer tells.

    Those of gloo beside NCCL's leave no entry; on gloo alone numbers show what was left out.
    """
    summaries = [summary for summary in merged.ranks.values() if summary.last != ABSENT]
    return not all(summary.gloo for summary in summaries) and all(
        summary.activity.copied for summary in summaries
    )


def _lacks_somebody(group: ResolvedGroup) -> bool:
    """True if some member is behind, or not known at all."""
    if group.guessed and len(group.members) == 1:
        # Nobody communicates with himself alone.
        return True
    return bool(_members_behind(group))


def _members_behind(group: ResolvedGroup) -> set[int]:
    """Members that have entered fewer operations than others, as far as is known."""
    known = {rank: s.entered for rank, s in group.progress.items() if s.entered is not None}
    most = max(known.values(), default=0)
    return set() if group.doubtful else {rank for rank, one in known.items() if one < most}


def _agreed(group_table: GroupTable) -> dict[ProcessGroup, int]:
    """Up to which number every member has provably finished everything."""
    agreed: dict[ProcessGroup, int] = {}
    for group in group_table.groups:
        ups = [_finished_up_to(group, rank) for rank in group.members]
        if ups and None not in ups:
            agreed[group.group] = min(up for up in ups if up is not None)
    return agreed


def _finished_up_to(group: ResolvedGroup, rank: int) -> int | None:
    progress = group.progress.get(rank)
    if progress is None or progress.entered is None:
        return None
    return min(progress.unfinished, default=progress.entered + 1) - 1
