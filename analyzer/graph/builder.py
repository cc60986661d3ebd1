"""From ranks' dumps to the wait-for graph: match, see who waits for whom, and where it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hanglab.analyzer.flight_recorder.columns import ABSENT, RankDump
from hanglab.analyzer.graph.added_operations import find_added_operations
from hanglab.analyzer.graph.any_source import narrow_sources
from hanglab.analyzer.graph.entry_order import (
    message_crossed,
    odd_place,
    outvoted,
    was_crossed_before,
)
from hanglab.analyzer.graph.message_counts import find_miscount
from hanglab.analyzer.graph.mismatched_halves import find_mismatched_halves
from hanglab.analyzer.graph.owed_operations import (
    Owed,
    host_that_stopped,
    left_out_by_one,
    owed_operations,
    was_passed_before,
)
from hanglab.analyzer.graph.p2p_counts import PassedMessage, find_passed, posted_by_counts
from hanglab.analyzer.graph.progressing_ranks import find_progressing, without_state_of
from hanglab.analyzer.graph.roots import (
    WaitCycle,
    WaitEnd,
    WaitRoots,
    find_roots,
    may_hide,
    reaching,
)
from hanglab.analyzer.graph.stopped_device import (
    StoppedDevice,
    find_stopped_device,
    meets_another_message,
)
from hanglab.analyzer.graph.thresholds import FULL_RANKS, LISTED_OPERATIONS, SMALL
from hanglab.analyzer.graph.wait_for_graph import (
    Cycle,
    MismatchedMessage,
    Sink,
    Unmatched,
    Wait,
    WaitForGraph,
    WaitKind,
)
from hanglab.analyzer.graph.waits import OpenOperation, OpenOperations, find_waits
from hanglab.analyzer.graph.wrong_group import (
    StrayCall,
    find_stray_calls,
    find_wrong_group,
    repeats_call,
)
from hanglab.analyzer.graph.wrong_peer import find_wrong_peer
from hanglab.analyzer.matching.all_to_all_sizes import find_size_mismatch
from hanglab.analyzer.matching.call_lookup import CallLookup, DumpsInMemory, DumpSource, plain_call
from hanglab.analyzer.matching.calls import Call, Difference, Divergence, ProcessGroup
from hanglab.analyzer.matching.divergence import find_divergences
from hanglab.analyzer.matching.groups import GroupTable, ResolvedGroup, resolve
from hanglab.analyzer.matching.issue_order import find_rank_ahead, jumps_over
from hanglab.analyzer.matching.merging import MergedSummaries, merge_all
from hanglab.analyzer.matching.message_mismatches import MessageMismatch, find_message_mismatches
from hanglab.analyzer.matching.sequences import sequences_of
from hanglab.analyzer.matching.signatures import difference
from hanglab.analyzer.matching.summary import Pending, summarise
from hanglab.recorder.case.operations import op_of


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
    merged = merge_all(summarise(dump) for dump in by_rank.values())
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
        self._small = len(merged.ranks) <= SMALL
        self._calls: dict[tuple[int, int], Call] = {}
        self._on: dict[tuple[int, bool], tuple[int, ...]] = {}
        #: Ranks without evidence that may be what a ring of others waits for.
        self._undecided: set[int] = set()
        #: Ranks of rings that go on without what they seem to wait for, and did not.
        self._stopped_hosts: list[WaitEnd] = []

    def build(self) -> WaitForGraph:
        merged, group_table = self._merged, self._group_table
        divergences, places, silent = self._divergences()
        mismatches = find_message_mismatches(merged, group_table)
        waits = find_waits(merged, group_table, places, mismatches)
        narrow_sources(merged, waits)
        for divergence in divergences:
            _settle_by_other_groups(divergence, group_table, waits)
            if not divergence.deviating and len(divergence.candidates) == 2:
                self._settle_by_issue_order(divergence)
        _settle_by_proved([*divergences, *silent])
        strays = self._stray_calls(divergences, waits)
        added = self._added(waits)
        roots = find_roots(merged, waits)
        passed = self._passed(roots)
        for end in roots.ends:
            self._confirm(end, waits)
            # Several that wait for nobody may wait for each other in what leaves no entry.
            if end.rank in group_table.silent_p2p:
                end.hidden = end.hidden or group_table.uses_p2p or len(roots.ends) > 1
        graph = WaitForGraph(
            ranks=tuple(sorted(merged.ranks)),
            expected=group_table.expected,
            groups=[group.group for group in group_table.groups],
            divergences=divergences,
            silent_mismatches=silent,
            mismatched_messages=self._mismatched(mismatches),
            lookup=self._lookup,
            open=tuple(roots.open),
            progressing=tuple(self._progressing),
            world_size_unknown=group_table.world_size_unknown,
            empty=group_table.empty,
            silent_p2p=group_table.silent_p2p,
            name_conflicts=group_table.name_conflicts,
            idle_s=_idle_s(merged),
            incomplete=any(map(_lacks_somebody, group_table.groups))
            or any(map(may_hide, merged.ranks.values())),
        )
        important = {end.rank for end in roots.ends if end.kind != "unknown"}
        important.update(rank for divergence in divergences for rank in divergence.deviating)
        important.update(rank for cycle in strays for rank in cycle.deviating)
        important.update(call.rank for call in added)
        important = set(sorted(important)[:FULL_RANKS])
        self._lookup.prefetch(sorted(important)[:FULL_RANKS])
        everybody = reaching(waits, important) if len(roots.ends) > SMALL else set()
        graph.sinks = [self._sink(end, waits, everybody) for end in roots.ends]
        stopped = None
        graph.added = added
        told = divergences or strays or passed or added
        if not told and all(end.kind == "unknown" for end in roots.ends):
            stopped = find_stopped_device(merged, waits, self._lookup)
            if stopped is not None and stopped.unstarted:
                # Whatever those do of whom nothing is known, it holds its peers up.
                graph.sinks, graph.open = [], ()
            elif roots.ends:
                stopped = None
        if stopped is None or not stopped.unstarted:
            graph.cycles, graph.unmatched = self._cycles(roots, important, waits)
            graph.cycles += strays
            graph.unmatched += [self._passed_over(one) for one in passed]
            graph.sinks += [self._sink(end, waits, everybody) for end in self._stopped_hosts]
        if stopped is None and not (divergences or roots.ends or roots.cycles):
            graph.cycles += self._crossed_messages(waits)
        alone = len(waits.by_rank) < 2  # Nobody waits for it.
        if stopped is not None and not alone and not (roots.cycles and not stopped.unstarted):
            graph.sinks.append(self._stopped_device(stopped, waits))
        for rank in sorted(merged.ranks):
            mine = waits.by_rank.get(rank, [])
            full = self._small or rank in important
            graph.unfinished[rank] = [
                self._call(rank, pending, waiting.group.group, full)
                for pending, waiting in mine[: LISTED_OPERATIONS if full else 1]
            ]
            for waiting in waits.first(rank):
                graph.waits.append(self._wait(rank, waiting, waits, full))
            if rank not in waits.stopped:
                graph.exchanged[rank] = frozenset(p.index for p, w in mine if w.exchanged)
            if full:
                last = self._last(rank)
                if last is not None:
                    graph.last_calls[rank] = last
        graph.stalled = [
            self._wait(min(waiting.waiters), waiting, waits, self._small)
            for waiting in roots.stalled
        ]
        graph.agreed = _agreed(group_table)
        graph.open = tuple(sorted({*graph.open, *self._undecided}))
        ends = {sink.rank for sink in graph.sinks if sink.unknown or sink.hidden}
        graph.would_decide = [
            self._deciding_evidence(rank) for rank in sorted(ends | self._undecided)
        ]
        return graph

    def _crossed_messages(self, waits: OpenOperations) -> list[Cycle]:
        """A message and a collective that two ranks have put into opposite orders."""
        crossed = message_crossed(waits, self._lookup)
        if crossed is None:
            return []
        calls = [
            self._call(rank, waiting.waiters[rank], waiting.group.group, full=True)
            for rank, waiting in crossed.items()
        ]
        odd = odd_place(crossed, self._lookup)
        return [
            Cycle(
                tuple(crossed),
                tuple(calls),
                p2p=False,
                deviating=(odd,) if odd is not None else (),
                candidates=tuple(sorted(crossed)),
                streams=True,
            )
        ]

    def _stopped_device(self, stopped: StoppedDevice, waits: OpenOperations) -> Sink:
        """The rank whose device alone explains what everybody has issued and nobody finishes."""
        rank = stopped.rank
        _, oldest = waits.by_rank[rank][0]
        others = [w for w in waits.operations.values() if w.waiters.keys() - {rank}]
        awaited = [w for w in others if w.peer == rank or rank in w.waiters] or others
        if oldest in awaited:
            awaited = [oldest]
        sink = self._sink(WaitEnd(rank, awaited, "stopped"), waits, set())
        sink.victims = tuple(sorted(waits.by_rank.keys() - {rank}))
        sink.by_exclusion, sink.unstarted = True, stopped.unstarted
        return sink

    def _deciding_evidence(self, rank: int) -> str:
        if rank in self._progressing:
            return f"a later dump of rank {rank}"
        return f"rank {rank}'s {'stack' if rank in self._merged.ranks else 'dump'}"

    def _divergences(self) -> tuple[list[Divergence], dict[int, int], list[Divergence]]:
        """Those that may hold somebody up, their numbers by group, and the silent ones."""
        table = self._merged.table()
        exchanging = {
            self._group_table.places[rank, pending.part]
            for rank, summary in self._merged.ranks.items()
            for pending in summary.pending
            if op_of(pending.op).splits
        }
        found: list[Divergence] = []
        silent: list[Divergence] = []
        places: dict[int, int] = {}
        for place, group in enumerate(self._group_table.groups):
            if group.doubtful or group.misnamed:
                continue
            sequences = sequences_of(self._merged, group, table)
            stuck = any(progress.unfinished for progress in group.progress.values())
            divergences = find_divergences(sequences, self._lookup, stuck=stuck)
            silent += [one for one in divergences.silent if self._proves_to_be_silent(one)]
            divergence = divergences.first
            if divergence is None and stuck and place in exchanging:
                divergence = find_size_mismatch(group, self._lookup)
            if divergence is not None:
                found.append(divergence)
                places[place] = divergence.seq
        return found, places, silent

    def _proves_to_be_silent(self, divergence: Divergence) -> bool:
        """False where gloo's own buffer alone tells: it calls finished what failed, too."""
        numbered = {
            rank: summary.parts
            for rank in divergence.calls
            if (summary := self._merged.ranks[rank]).silent_p2p
        }
        return all(
            any(
                part.name == divergence.group.name and part.base + part.length > divergence.seq + 1
                for part in parts
            )
            for parts in numbered.values()
        )

    def _mismatched(self, mismatches: list[MessageMismatch]) -> list[MismatchedMessage]:
        found = []
        for one in mismatches[:FULL_RANKS]:
            sent, taken = (
                self._lookup.message(rank, one.group, channel, one.position)
                for rank, channel in one.ends
            )
            if sent is not None and taken is not None:
                found.append(
                    MismatchedMessage(sent, taken, one.difference, one.deviating, one.finished)
                )
        return found

    def _call(self, rank: int, pending: Pending, group: ProcessGroup, full: bool) -> Call:
        if not full:
            return plain_call(rank, pending, group)
        if pending.index == ABSENT:
            return self._lookup.pending(rank, pending, group)
        key = rank, pending.index
        if key not in self._calls:
            self._calls[key] = self._lookup.pending(rank, pending, group)
        return self._calls[key]

    def _wait(self, rank: int, waiting: OpenOperation, waits: OpenOperations, full: bool) -> Wait:
        call = self._call(rank, waiting.waiters[rank], waiting.group.group, full)
        if rank in waits.stopped and waiting.finished:
            return Wait(call, WaitKind.DEVICE, ())
        on = self._waited_for(rank, waiting)
        if waiting.seq is None:
            if waiting.peer is not None and not on:
                return Wait(call, WaitKind.STALLED, (waiting.peer,))
            return Wait(call, WaitKind.PEER, on)
        if not on:
            return Wait(call, WaitKind.STALLED, ())
        return Wait(call, WaitKind.NOT_ENTERED, on)

    def _waited_for(self, rank: int, waiting: OpenOperation) -> tuple[int, ...]:
        """The ranks that a wait is for; one tuple for all waiters where they are many."""
        count = len(waiting.absent) + len(waiting.behind) + len(waiting.unknown)
        if count <= SMALL:
            return tuple(sorted(set(waiting.blockers(rank))))
        key = id(waiting), rank in waiting.leaders
        if key not in self._on:
            self._on[key] = tuple(sorted(set(waiting.blockers(rank))))
        return self._on[key]

    def _last(self, rank: int) -> Call | None:
        summary = self._merged.ranks.get(rank)
        entries = self._lookup.entries(rank) if summary is not None else None
        if summary is None or entries is None or summary.last == ABSENT:
            return None
        name = entries.group_names[int(entries.group[summary.last])].name
        for number, part in enumerate(summary.parts):
            if part.name == name:
                group = self._group_table.groups[self._group_table.places[rank, number]]
                open_ = {pending.index for pending in summary.pending}
                return self._lookup.at(
                    rank, summary.last, group.group, completed=summary.last not in open_
                )
        return None

    def _sink(self, end: WaitEnd, waits: OpenOperations, everybody: set[int]) -> Sink:
        waiting = _next_awaited(end)
        waiter = min(other for other in waiting.waiters if other != end.rank)
        theirs = self._call(waiter, waiting.waiters[waiter], waiting.group.group, self._small)
        own = None
        if waiting.seq is not None and end.kind == "stopped":
            own = self._lookup.collective(end.rank, waiting.group, waiting.seq)
        awaited = own or Call(
            rank=end.rank,
            group=waiting.group.group,
            seq=waiting.seq,
            op=_other_half(theirs),
            arguments=theirs.arguments,
            peer=waiter if waiting.seq is None else None,
        )
        # Of very many ends, each one's own victims are not told apart.
        victims = (everybody or reaching(waits, [end.rank])) - {end.rank}
        return Sink(
            rank=end.rank,
            awaited=awaited,
            outside=end.kind == "outside",
            unknown=end.kind == "unknown",
            stopped_device=end.kind == "stopped",
            victims=tuple(sorted(victims)),
            last=self._last(end.rank),
            hidden=end.hidden,
            elsewhere=end.elsewhere,
        )

    def _stray_calls(self, divergences: list[Divergence], waits: OpenOperations) -> list[Cycle]:
        """Calls on the wrong group, which explain whatever waits in it, or where they lack."""
        found: dict[int, StrayCall] = {}
        for stray in find_stray_calls(waits, self._group_table.groups, self._lookup):
            found.setdefault(stray.rank, stray)
        _explain([one for s in found.values() for one in (s.taken, s.usual)], waits)
        cycles = []
        for stray in found.values():
            mine = self._call(
                stray.rank, stray.taken.waiters[stray.rank], stray.taken.group.group, full=True
            )
            theirs = [
                self._call(rank, pending, stray.usual.group.group, full=True)
                for rank, pending in stray.usual.waiters.items()
            ]
            divergences[:] = [d for d in divergences if d.group != mine.group]
            ranks = (stray.rank, *stray.usual.waiters)
            cycles.append(
                Cycle(
                    ranks,
                    (mine, *theirs),
                    False,
                    deviating=(stray.rank,),
                    candidates=ranks,
                    wrong_group=True,
                )
            )
        return cycles

    def _added(self, waits: OpenOperations) -> list[Call]:
        """Calls that one rank has too many, which explain who waits in that group."""
        found = list(find_added_operations(waits, self._lookup))
        _explain(found, waits)
        return [
            self._call(rank, pending, operation.group.group, full=True)
            for operation in found
            for rank, pending in operation.waiters.items()
        ]

    def _settle_by_issue_order(self, divergence: Divergence) -> None:
        name, seq = divergence.group.name, divergence.seq
        rank_ahead = find_rank_ahead(
            {rank: self._lookup.index_of(rank, name, seq) for rank in divergence.candidates},
            self._lookup,
        )
        if rank_ahead is not None:
            divergence.deviating, divergence.candidates = (rank_ahead,), ()
            # It jumped ahead in its own order: what it left out, its peer does.
            divergence.skipped = divergence.difference in (
                Difference.OPERATION,
                Difference.CALL_SITE,
            )

    def _confirm(self, end: WaitEnd, waits: OpenOperations) -> None:
        """Sends and receives that could not be counted prove nothing by themselves.

        Nor does a receive that does not finish prove anything of a device, if it is not the one
        for what was sent.
        """
        if end.kind == "stopped" and meets_another_message(end.rank, waits, self._lookup):
            end.kind = "unknown"
        if end.kind == "outside" and not any(waiting.certain for waiting in end.awaited):
            if not any(posted_by_counts(waiting, self._lookup) is False for waiting in end.awaited):
                end.kind = "unknown"

    def _confirmed_by_counts(self, cycle: WaitCycle) -> bool:
        """True if counting again confirms what each rank of a ring lacks."""
        for waiting in cycle.places.values():
            if not waiting.certain:
                posted = posted_by_counts(waiting, self._lookup)
                if posted is None or posted != (not waiting.absent):
                    return False
        return True

    def _misdirected(
        self, cycle: WaitCycle, calls: dict[int, Call], waits: OpenOperations
    ) -> Unmatched | None:
        """The one send or receive of a ring that is not what its rank had to do, if any."""
        wrong_peer = find_wrong_peer(cycle, waits, self._lookup)
        if wrong_peer is not None:
            peer = wrong_peer.waiting.peer
            missed = tuple(
                self._call(rank, pending, waiting.group.group, full=True)
                for waiting in wrong_peer.missed
                for rank, pending in waiting.waiters.items()
            )
            instead = calls.get(peer) if peer is not None else None
            return Unmatched(
                calls[wrong_peer.rank],
                instead,
                (wrong_peer.rank,),
                missed,
                likely=not wrong_peer.sure,
            )
        indices = {rank: waiting.waiters[rank].index for rank, waiting in cycle.places.items()}
        p2p = all(waiting.seq is None for waiting in cycle.places.values())
        rank_ahead = find_rank_ahead(indices, self._lookup) if p2p else None
        if rank_ahead is None:
            return None
        waiter = next(r for r, w in cycle.places.items() if rank_ahead in w.blockers(r))
        if not jumps_over(
            self._lookup.entries(rank_ahead),
            indices[rank_ahead],
            cycle.places[waiter].group.group.name,
            cycle.places[waiter].waiters[waiter],
        ):
            return None
        return Unmatched(calls[waiter], calls[rank_ahead], (rank_ahead,))

    def _passed(self, roots: WaitRoots) -> list[PassedMessage]:
        """Messages whose peers are past them; such peers are no end of waits any more."""
        found: list[PassedMessage] = []
        for end in list(roots.ends):
            if (
                end.kind != "outside"
                or end.elsewhere
                or any(w.seq is not None for w in end.awaited)
            ):
                continue
            mine = [find_passed(waiting, self._lookup) for waiting in end.awaited]
            passed = [one for one in mine if one is not None]
            if len(passed) == len(mine):
                roots.ends.remove(end)
                found += passed
        return found

    def _passed_over(self, passed: PassedMessage) -> Unmatched:
        waiting = passed.waiting
        (rank, pending), *_ = waiting.waiters.items()
        call = self._call(rank, pending, waiting.group.group, full=True)
        return Unmatched(call, None, () if passed.deviating is None else (passed.deviating,))

    def _left_out(self, owed: Owed, calls: dict[int, Call]) -> Unmatched:
        return Unmatched(calls[owed.waiter], calls[owed.rank], (owed.rank,))

    def _miscounted(
        self, cycle: WaitCycle, calls: dict[int, Call], waits: OpenOperations
    ) -> Unmatched | None:
        """The message of a ring that one rank sent, or waits for, other than it used to."""
        found = find_miscount(cycle.places, waits, self._lookup)
        if found is None:
            return None
        return Unmatched(
            calls[found.rank], calls[found.peer], (found.deviating,), likely=found.likely
        )

    def _cycles(
        self, roots: WaitRoots, important: set[int], waits: OpenOperations
    ) -> tuple[list[Cycle], list[Unmatched]]:
        cycles: list[Cycle] = []
        unmatched: list[Unmatched] = []
        for cycle in roots.cycles:
            cycle.certain = cycle.certain or self._confirmed_by_counts(cycle)
            ranks = tuple(cycle.places)
            full = self._small or len(ranks) <= SMALL
            if full:
                important.update(ranks)
            calls = {}
            for rank in ranks:
                waiting = cycle.places[rank]
                pending = waiting.waiters[rank]
                calls[rank] = self._call(rank, pending, waiting.group.group, full)
            p2p = [waiting.seq is None for waiting in cycle.places.values()]
            if not all(p2p) and any(w.behind and w.unknown for w in cycle.places.values()):
                # Their orders differ, which may be harmless, as that of two threads is: the
                # ranks of which nothing is known may be what all wait for.
                self._undecided.update(r for w in cycle.places.values() for r in w.unknown)
                continue
            owed = owed_operations(cycle, self._lookup) if full and not cycle.knot else []
            missing = find_mismatched_halves(cycle.places, self._lookup) if full else None
            if missing is not None:
                first, second = missing.ranks
                by = () if missing.deviating is None else (missing.deviating,)
                unmatched.append(Unmatched(calls[first], calls[second], by, missing=True))
                continue
            miscounted = self._miscounted(cycle, calls, waits) if full and any(p2p) else None
            if miscounted is not None:
                unmatched.append(miscounted)
                if miscounted.likely and not cycle.knot:
                    # Where the ranks stand in their loops may prove it.
                    cycles.append(Cycle(ranks, tuple(calls.values()), all(p2p)))
                continue
            if cycle.knot:
                if all(place.any_source for place in cycle.places.values()):
                    cycles.append(Cycle(ranks, tuple(calls.values()), True))
                else:
                    self._undecided.update(ranks)
                continue
            left_out = left_out_by_one(owed, waits, self._lookup)
            if left_out is not None:
                unmatched.append(self._left_out(left_out, calls))
                continue
            stopped = host_that_stopped(owed)
            if stopped is not None:
                awaited = [w for w in waits.operations.values() if stopped in w.absent]
                end = WaitEnd(stopped, awaited, "outside", elsewhere=True)
                self._stopped_hosts.append(end)
                important.add(stopped)
                continue
            unsure = set(ranks) if was_passed_before(owed) else waits.unsettled.intersection(ranks)
            if unsure:
                # They may wait for what they have started, or do something else.
                self._undecided.update(unsure)
                continue
            if full and not any(p2p) and was_crossed_before(cycle, self._lookup):
                self._undecided.update(ranks)
                continue
            deviating: tuple[int, ...] = cycle.keys if len(cycle.keys) == 1 else ()
            if full and not any(p2p):
                deviating = deviating or outvoted(cycle, self._lookup)
            if not deviating and not all(p2p):
                rank_ahead = find_rank_ahead(
                    {rank: cycle.places[rank].waiters[rank].index for rank in cycle.keys},
                    self._lookup,
                )
                deviating = (rank_ahead,) if rank_ahead is not None else ()
            wrong_group = None
            if full and not any(p2p):
                indices = {rank: cycle.places[rank].waiters[rank].index for rank in ranks}
                wrong_group = find_wrong_group(calls, indices, self._lookup)
            if wrong_group is not None and wrong_group.deviating is not None:
                deviating = (wrong_group.deviating,)
            misdirected = self._misdirected(cycle, calls, waits) if full and any(p2p) else None
            if misdirected is not None:
                unmatched.append(misdirected)
            cycles.append(
                Cycle(
                    ranks,
                    tuple(calls.values()),
                    all(p2p),
                    deviating=deviating,
                    candidates=tuple(sorted(cycle.keys or ranks)),
                    certain=cycle.certain,
                    wrong_group=wrong_group is not None,
                    repeated=full
                    and not any(p2p)
                    and len(deviating) == 1
                    and repeats_call(
                        deviating[0],
                        calls,
                        cycle.places[deviating[0]].waiters[deviating[0]].index,
                        self._lookup,
                    ),
                )
            )
            if any(p2p) and not all(p2p) and misdirected is None:
                for rank in ranks:
                    peer = cycle.places[rank].peer
                    if peer not in calls or cycle.places[peer].seq is None:
                        continue
                    # In a longer ring the peer may be late because of others.
                    if len(ranks) == 2 or deviating == (peer,):
                        unmatched.append(Unmatched(calls[rank], calls[peer], deviating))
        return cycles, unmatched


def _idle_s(merged: MergedSummaries) -> float:
    """Seconds without anything that any rank did, where all were idle; else 0."""
    summaries = [summary for summary in merged.ranks.values() if not summary.empty]
    if not summaries or not all(s.activity.idle(unseen=s.silent_p2p) for s in summaries):
        return 0.0
    return min(summary.activity.quiet_ns for summary in summaries) / 1e9


def _lacks_somebody(group: ResolvedGroup) -> bool:
    """True if some member is behind, or not known at all."""
    if group.guessed and len(group.members) == 1:
        # Nobody communicates with himself alone.
        return True
    if group.doubtful:
        return False
    return len({s.entered for s in group.progress.values() if s.entered is not None}) > 1


def _explain(begins: Sequence[OpenOperation], waits: OpenOperations) -> None:
    """Mark operations as explained, and those behind them in their groups."""
    since = {begin.key[0]: begin.seq or 0 for begin in begins}
    for operation in waits.operations.values():
        place = operation.key[0]
        if operation.seq is not None and operation.seq >= since.get(place, operation.seq + 1):
            operation.explained = True


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


def _next_awaited(end: WaitEnd) -> OpenOperation:
    """The operation that the rank would have to enter next, as far as its waiters show."""
    earliest: dict[int, OpenOperation] = {}
    for waiting in end.awaited:
        if waiting.seq is not None and any(rank != end.rank for rank in waiting.waiters):
            known = earliest.get(waiting.key[0])
            if known is None or waiting.seq < (known.seq or 0):
                earliest[waiting.key[0]] = waiting
    if not earliest:
        others = [w for w in end.awaited if any(rank != end.rank for rank in w.waiters)]
        return min(others, key=lambda w: min(p.order for p in w.waiters.values()))
    # Who waits in one of them and has yet to enter another does the one first.
    first = [
        waiting
        for waiting in earliest.values()
        if not any(
            other is not waiting and not set(waiting.absent).isdisjoint(other.waiters)
            for other in earliest.values()
        )
    ]
    # Of equals the one whose group comes first, whatever the order of the dumps.
    return min(
        first or earliest.values(),
        key=lambda waiting: (
            -len(waiting.waiters),
            waiting.group.members,
            waiting.group.group.name,
        ),
    )


def _other_half(call: Call) -> str:
    if call.seq is None:
        return op_of(call.op).other_half
    return call.op


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
