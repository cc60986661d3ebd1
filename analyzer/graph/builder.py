"""From ranks' dumps to the picture of the job: match, see who waits for whom, and where it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hanglab.analyzer.flight_recorder.columns import ABSENT, RankDump
from hanglab.analyzer.graph.progressing_ranks import find_moving, without
from hanglab.analyzer.graph.roots import Blame, End, Ring, find_blame, may_hide, reaching
from hanglab.analyzer.graph.unmatched_receives import find_unserved, is_passed_over
from hanglab.analyzer.graph.wait_for_graph import (
    Call,
    Cycle,
    Difference,
    Divergence,
    Group,
    Picture,
    Sink,
    Unmatched,
    Wait,
    WaitKind,
)
from hanglab.analyzer.graph.waits import Waiting, Waits, find_waits
from hanglab.analyzer.graph.wrong_peer import find_stray
from hanglab.analyzer.matching.all_to_all_sizes import find_misfit
from hanglab.analyzer.matching.call_lookup import InMemory, Lookup, SecondLook, plain_call
from hanglab.analyzer.matching.divergence import find_divergence
from hanglab.analyzer.matching.groups import Cast, ResolvedGroup, resolve
from hanglab.analyzer.matching.issue_order import find_breaker, leaves_out
from hanglab.analyzer.matching.merging import Merged, merge_all
from hanglab.analyzer.matching.p2p_counts import recount
from hanglab.analyzer.matching.sequences import sequences_of
from hanglab.analyzer.matching.signatures import difference, is_all_to_all
from hanglab.analyzer.matching.summary import Pending, summarise

#: Jobs up to this size are read in full a second time, of larger ones the ranks that matter.
SMALL = 64
#: Of large jobs so many ranks are read in full a second time.
_READ = 256
#: So many unfinished operations of a rank are listed in the picture.
_LISTED = 256


def build_picture(dumps: Iterable[RankDump], *, expected: Sequence[int] | None = None) -> Picture:
    """The picture of a job whose dumps are all at hand.

    ``expected`` are the global ranks that the job should have; without it, the
    ranks that the dumps name.
    """
    by_rank: dict[int, RankDump] = {}
    for dump in dumps:
        by_rank.setdefault(dump.rank, dump)
    merged = merge_all(summarise(dump) for dump in by_rank.values())
    return picture(merged, InMemory(by_rank), expected=expected)


def picture(
    merged: Merged,
    second_look: SecondLook | Callable[[int], RankDump | None],
    *,
    expected: Sequence[int] | None = None,
) -> Picture:
    """The picture of a job from its united summaries.

    ``second_look`` reads a rank's dump once more; it is asked for few ranks in
    large jobs, and may return None.  Where it has a method ``many``, that is
    asked for several ranks at once.
    """
    cast = resolve(merged, expected)
    moving = find_moving(merged, cast) if _anything_open(cast, merged) else []
    if moving:
        merged = without(merged, moving)
        cast = resolve(merged, expected)
    painter = _Painter(merged, cast, Lookup(second_look), moving)
    return painter.paint()


def _anything_open(cast: Cast, merged: Merged) -> bool:
    return any(summary.pending for summary in merged.ranks.values()) or any(
        standing.unfinished for group in cast.groups for standing in group.standings.values()
    )


class _Painter:
    def __init__(self, merged: Merged, cast: Cast, lookup: Lookup, moving: list[int]) -> None:
        self._moving = moving
        self._merged = merged
        self._cast = cast
        self._lookup = lookup
        self._small = len(merged.ranks) <= SMALL
        self._calls: dict[tuple[int, int], Call] = {}
        self._on: dict[tuple[int, bool], tuple[int, ...]] = {}
        #: Ranks without evidence that may be what a ring of others waits for.
        self._undecided: set[int] = set()

    def paint(self) -> Picture:
        merged, cast = self._merged, self._cast
        divergences, places = self._divergences()
        waits = find_waits(merged, cast, places)
        for divergence in divergences:
            _settle(divergence, cast, waits)
            if not divergence.deviating and len(divergence.candidates) == 2:
                self._settle_by_habit(divergence)
        blame = find_blame(merged, waits)
        for end in blame.ends:
            self._confirm(end)
            # Several that wait for nobody may wait for each other in what leaves no entry.
            if end.rank in cast.silent_p2p:
                end.hidden = end.hidden or cast.uses_p2p or len(blame.ends) > 1
        picture = Picture(
            ranks=tuple(sorted(merged.ranks)),
            expected=cast.expected,
            groups=[group.group for group in cast.groups],
            divergences=divergences,
            open=tuple(blame.open),
            moving=tuple(self._moving),
            endless=cast.endless,
            blank=cast.blank,
            silent_p2p=cast.silent_p2p,
            incomplete=any(map(_lacks_somebody, cast.groups))
            or any(map(may_hide, merged.ranks.values())),
            abridged=not self._small,
        )
        important = {end.rank for end in blame.ends if end.kind != "unknown"}
        important.update(rank for divergence in divergences for rank in divergence.deviating)
        important = set(sorted(important)[:_READ])
        self._lookup.prefetch(sorted(important)[:_READ])
        everybody = reaching(waits, important) if len(blame.ends) > SMALL else set()
        picture.sinks = [self._sink(end, waits, everybody) for end in blame.ends]
        picture.cycles, picture.unmatched = self._rings(blame, important, waits)
        for rank in sorted(merged.ranks):
            mine = waits.by_rank.get(rank, [])
            full = self._small or rank in important
            picture.unfinished[rank] = [
                self._call(rank, pending, waiting.group.group, full)
                for pending, waiting in mine[: _LISTED if full else 1]
            ]
            for waiting in waits.first(rank):
                picture.waits.append(self._wait(rank, waiting, waits, full))
            if full:
                last = self._last(rank)
                if last is not None:
                    picture.last_calls[rank] = last
        picture.stalled = [
            self._wait(min(waiting.waiters), waiting, waits, self._small)
            for waiting in blame.stalled
        ]
        picture.agreed = _agreed(cast)
        picture.open = tuple(sorted({*picture.open, *self._undecided}))
        ends = {end.rank for end in blame.ends if end.kind == "unknown" or end.hidden}
        picture.would_decide = [self._what_decides(rank) for rank in sorted(ends | self._undecided)]
        return picture

    def _what_decides(self, rank: int) -> str:
        if rank in self._moving:
            return f"a later dump of rank {rank}"
        return f"rank {rank}'s {'stack' if rank in self._merged.ranks else 'dump'}"

    def _divergences(self) -> tuple[list[Divergence], dict[int, int]]:
        table = self._merged.table()
        exchanging = {
            self._cast.places[rank, pending.part]
            for rank, summary in self._merged.ranks.items()
            for pending in summary.pending
            if is_all_to_all(pending.op)
        }
        found: list[Divergence] = []
        places: dict[int, int] = {}
        for place, group in enumerate(self._cast.groups):
            if group.doubtful:
                continue
            sequences = sequences_of(self._merged, group, table)
            stuck = any(standing.unfinished for standing in group.standings.values())
            divergence = find_divergence(sequences, self._lookup, stuck=stuck)
            if divergence is None and stuck and place in exchanging:
                divergence = find_misfit(group, self._lookup)
            if divergence is not None:
                found.append(divergence)
                places[place] = divergence.seq
        return found, places

    def _call(self, rank: int, pending: Pending, group: Group, full: bool) -> Call:
        if not full:
            return plain_call(rank, pending, group)
        if pending.index == ABSENT:
            return self._lookup.pending(rank, pending, group)
        key = rank, pending.index
        if key not in self._calls:
            self._calls[key] = self._lookup.pending(rank, pending, group)
        return self._calls[key]

    def _wait(self, rank: int, waiting: Waiting, waits: Waits, full: bool) -> Wait:
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

    def _waited_for(self, rank: int, waiting: Waiting) -> tuple[int, ...]:
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
                group = self._cast.groups[self._cast.places[rank, number]]
                open_ = {pending.index for pending in summary.pending}
                return self._lookup.at(
                    rank, summary.last, group.group, completed=summary.last not in open_
                )
        return None

    def _sink(self, end: End, waits: Waits, everybody: set[int]) -> Sink:
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
        )

    def _settle_by_habit(self, divergence: Divergence) -> None:
        name, seq = divergence.group.name, divergence.seq
        breaker = find_breaker(
            {rank: self._lookup.index_of(rank, name, seq) for rank in divergence.candidates},
            self._lookup,
        )
        if breaker is not None:
            divergence.deviating, divergence.candidates = (breaker,), ()
            # It jumped ahead in its own order: what it left out, its peer does.
            divergence.skipped = divergence.difference in (
                Difference.OPERATION,
                Difference.CALL_SITE,
            )

    def _confirm(self, end: End) -> None:
        """Sends and receives that could not be counted prove nothing by themselves."""
        if end.kind == "outside" and not any(waiting.certain for waiting in end.awaited):
            if not any(recount(waiting, self._lookup) is False for waiting in end.awaited):
                end.kind = "unknown"

    def _recounted(self, ring: Ring) -> bool:
        """Whether counting again confirms what each rank of a ring lacks."""
        for waiting in ring.places.values():
            if not waiting.certain:
                posted = recount(waiting, self._lookup)
                if posted is None or posted != (not waiting.absent):
                    return False
        return True

    def _strayed(self, ring: Ring, calls: dict[int, Call], waits: Waits) -> Unmatched | None:
        """The one send or receive of a ring that is not what its rank had to do, if any."""
        stray = find_stray(ring, waits, self._lookup)
        if stray is not None:
            peer = stray.waiting.peer
            missed = tuple(
                self._call(rank, pending, waiting.group.group, full=True)
                for waiting in stray.missed
                for rank, pending in waiting.waiters.items()
            )
            instead = calls.get(peer) if peer is not None else None
            return Unmatched(
                calls[stray.rank], instead, (stray.rank,), missed, likely=not stray.sure
            )
        indices = {rank: waiting.waiters[rank].index for rank, waiting in ring.places.items()}
        p2p = all(waiting.seq is None for waiting in ring.places.values())
        breaker = find_breaker(indices, self._lookup) if p2p else None
        if breaker is None:
            return None
        waiter = next(r for r, w in ring.places.items() if breaker in w.blockers(r))
        if not leaves_out(
            self._lookup.entries(breaker),
            indices[breaker],
            ring.places[waiter].group.group.name,
            ring.places[waiter].waiters[waiter],
        ):
            return None
        return Unmatched(calls[waiter], calls[breaker], (breaker,))

    def _unserved(self, waits: Waits) -> list[Unmatched]:
        return [
            Unmatched(
                self._call(one.rank, one.waiting.waiters[one.rank], one.waiting.group.group, True),
                self._call(one.breaker, one.pending, one.instead.group.group, True),
                (one.breaker,),
            )
            for one in find_unserved(waits, self._lookup)
        ]

    def _rings(
        self, blame: Blame, important: set[int], waits: Waits
    ) -> tuple[list[Cycle], list[Unmatched]]:
        cycles: list[Cycle] = []
        unmatched: list[Unmatched] = []
        for ring in blame.rings:
            ring.certain = ring.certain or self._recounted(ring)
            ranks = tuple(ring.places)
            full = self._small or len(ranks) <= SMALL
            if full:
                important.update(ranks)
            calls = {}
            for rank in ranks:
                waiting = ring.places[rank]
                pending = waiting.waiters[rank]
                calls[rank] = self._call(rank, pending, waiting.group.group, full)
            p2p = [waiting.seq is None for waiting in ring.places.values()]
            if not all(p2p) and any(w.behind and w.unknown for w in ring.places.values()):
                # Their orders differ, which may be harmless, as that of two threads is: the
                # ranks of which nothing is known may be what all wait for.
                self._undecided.update(r for w in ring.places.values() for r in w.unknown)
                continue
            deviating = ring.keys if len(ring.keys) == 1 else ()
            if not deviating and not all(p2p):
                breaker = find_breaker(
                    {rank: ring.places[rank].waiters[rank].index for rank in ring.keys},
                    self._lookup,
                )
                deviating = (breaker,) if breaker is not None else ()
            strayed = self._strayed(ring, calls, waits) if full and any(p2p) else None
            if strayed is not None:
                unmatched.append(strayed)
            cycles.append(
                Cycle(
                    ranks,
                    tuple(calls.values()),
                    all(p2p),
                    deviating=deviating,
                    candidates=tuple(sorted(ring.keys or ranks)),
                    certain=ring.certain,
                )
            )
            if any(p2p) and not all(p2p) and strayed is None:
                for rank in ranks:
                    peer = ring.places[rank].peer
                    if peer not in calls or ring.places[peer].seq is None:
                        continue
                    # In a longer ring the peer may be late because of others.
                    if len(ranks) == 2 or deviating == (peer,):
                        omitted = is_passed_over(rank, ring.places[rank], waits, self._lookup)
                        unmatched.append(
                            Unmatched(calls[rank], calls[peer], deviating, omitted=omitted)
                        )
        return cycles, unmatched + self._unserved(waits)


def _lacks_somebody(group: ResolvedGroup) -> bool:
    """Whether some member is behind, or not known at all."""
    if group.guessed and len(group.members) == 1:
        # Nobody communicates with himself alone.
        return True
    if group.doubtful:
        return False
    return len({s.entered for s in group.standings.values() if s.entered is not None}) > 1


def _settle(divergence: Divergence, cast: Cast, waits: Waits) -> None:
    """Let the order of other groups decide where the group alone cannot.

    A member that waits for a candidate in another operation, and has yet to come
    here, does that operation first; the candidate came here first (or put it
    behind, on its device).
    """
    if divergence.deviating:
        return
    group = next(g for g in cast.groups if g.group == divergence.group)
    late = {
        rank
        for rank, standing in group.standings.items()
        if standing.has_entered(divergence.seq) is False
    }
    against = {
        rank
        for waiting in waits.operations.values()
        if waiting.seq is not None and not late.isdisjoint(waiting.leaders)
        for rank in (*waiting.absent, *waiting.behind)
        if rank in divergence.calls
    }
    rest = [call for rank, call in divergence.calls.items() if rank not in against]
    if divergence.silent and len(against) > len(rest):
        return
    if against and rest and all(difference(rest[0], c, sites=False) is None for c in rest):
        divergence.deviating = tuple(sorted(against))
        divergence.candidates = ()


def _next_awaited(end: End) -> Waiting:
    """What the rank would have to enter next, as far as its waiters show."""
    earliest: dict[int, Waiting] = {}
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
        return "recv" if call.op.endswith("send") else "send"
    return call.op


def _agreed(cast: Cast) -> dict[Group, int]:
    """Up to which number every member has provably finished everything."""
    agreed: dict[Group, int] = {}
    for group in cast.groups:
        ups = [_finished_up_to(group, rank) for rank in group.members]
        if ups and None not in ups:
            agreed[group.group] = min(up for up in ups if up is not None)
    return agreed


def _finished_up_to(group: ResolvedGroup, rank: int) -> int | None:
    standing = group.standings.get(rank)
    if standing is None or standing.entered is None:
        return None
    return min(standing.unfinished, default=standing.entered + 1) - 1
