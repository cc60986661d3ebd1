"""Ranks whose dumps show them on their way and not where they came to a stand.

Dumps of one job are seldom taken at one moment, and some are taken while the
job still moves.  What such a dump lacks, its rank may have done a moment later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from hanglab.analyzer.flight_recorder.columns import ABSENT
from hanglab.analyzer.graph.thresholds import FULL_RANKS, LOOKED_AT_NUMBERS, PEERS
from hanglab.analyzer.graph.wait_for_graph import WaitForGraph
from hanglab.analyzer.matching.call_lookup import DumpSource
from hanglab.analyzer.matching.calls import Call
from hanglab.analyzer.matching.groups import GroupTable, ResolvedGroup
from hanglab.analyzer.matching.merging import MergedSummaries
from hanglab.analyzer.matching.sequences import Sequences, sequences_of
from hanglab.analyzer.matching.signatures import OPERATION, UInt64, operation_hash
from hanglab.analyzer.matching.summary import GAP
from hanglab.analyzer.worlds.pauses import in_usual_pause
from hanglab.analyzer.worlds.thresholds import (
    CLOCK_UNSET_NS,
    COPIED_LATER_NS,
    LONGEST_PAUSE_NS,
)
from hanglab.recorder.case.operations import OPERATIONS, op_of

#: Of operations that no member finishes before all have entered them.
_HASHES = frozenset(operation_hash(op.name) for op in OPERATIONS.values() if op.synchronizing)


def find_progressing(merged: MergedSummaries, group_table: GroupTable) -> list[int]:
    """Ranks that were active when their dumps were written, or that peers prove to be further.

    What other threads do while an operation is open beyond its timeout says nothing of that.
    """
    table = merged.table()
    activities = {rank: summary.activity for rank, summary in merged.ranks.items()}
    # Not every writer of dumps tells what has been retired.
    retires = any(activity.retires for activity in activities.values())
    progressing: set[int] = set()
    if not _have_timed_out(merged):
        progressing = {
            rank
            for rank, activity in activities.items()
            if activity.moving or (retires and activity.awaits_watchdog)
        }
    for group in group_table.groups:
        proved = _proved(group, merged, table)
        progressing.update(
            rank
            for rank, progress in group.progress.items()
            if progress.has_entered(proved) is False
            # Its operations end in turn: what is before one that all are in has ended.
            or (min(progress.unfinished, default=proved) < proved and not activities[rank].idle)
        )
        progressing.update(_senders_behind(group, merged))
    progressing.update(_dumped_before(merged, group_table))
    waited_ns = longest_wait_ns(merged)
    if ABSENT != waited_ns < LONGEST_PAUSE_NS:
        progressing.update(rank for rank, one in activities.items() if one.bare)
    return sorted(progressing)


def longest_wait_ns(merged: MergedSummaries) -> int:
    """Time since the last event of the rank that has rested longest; ABSENT where nothing tells.

    So long a rank of which nothing is on record has been awaited: it may have yet to begin.
    """
    activities = (summary.activity for summary in merged.ranks.values())
    return max((one.quiet_ns for one in activities if not one.bare), default=ABSENT)


def find_undated(graph: WaitForGraph, merged: MergedSummaries, source: DumpSource) -> set[int]:
    """Ranks that end waits and may have gone on: nothing tells when their dumps were written.

    Such a rank was absent, or its device in an operation, at a moment that may lie before what its
    peers wait for.  Dumps are taken for those of one moment where none is known to be of an earlier
    one; then a rank may have gone on that was seen within its usual pauses before its peers.  What
    a rank waits in itself holds its thread whenever it was dumped, but for receives alone.  A wait
    that outlived its timeout shows that the dumps are those that torch takes then.
    """
    summaries = merged.ranks.values()
    newest = max((summary.activity.last_ns for summary in summaries), default=ABSENT)
    for summary in summaries:
        limit = summary.activity.timeout_ns
        since = [p.created_ns for p in summary.pending if p.created_ns > 0]
        if limit != ABSENT and since and newest - min(since) >= limit:
            return set()
    peers = {}
    for sink in graph.sinks:
        if not sink.unknown:
            members = [rank for rank in sink.awaited.group.members if rank != sink.rank]
            victims = [rank for rank in members if rank in sink.victims] or members
            peers[sink.rank] = victims[:PEERS]
    for cycle in graph.cycles:
        # Receives are posted long before they are waited for.
        posted = cycle.p2p and not any(op_of(call.op).sends for call in cycle.calls)
        following = (*cycle.calls[1:], cycle.calls[0])
        for call, then in zip(cycle.calls, following, strict=True):
            if posted:
                peers[call.rank] = [then.rank]
            elif _of_other_threads(call, then, source):
                peers[then.rank] = [call.rank]
    undated = {}
    for rank, others in peers.items():
        activity = merged.ranks[rank].activity if rank in merged.ranks else None
        if activity is None:
            continue
        bare = activity.last_ns == ABSENT and newest > CLOCK_UNSET_NS
        if (
            activity.copied
            or activity.outdated
            or (bare and activity.written_ns - newest > COPIED_LATER_NS)
        ):
            undated[rank] = others
    return set(undated) if graph.progressing else _in_usual_pauses(undated, source)


def _have_timed_out(merged: MergedSummaries) -> bool:
    """True if a dump shows an operation open beyond its timeout, by what came behind it there."""
    return any(
        one.timeout_ns > 0 and one.created_ns > 0
        and summary.activity.last_ns - one.created_ns >= one.timeout_ns
        for summary in merged.ranks.values()
        for one in summary.pending
    )  # fmt: skip


def _of_other_threads(one: Call, other: Call, source: DumpSource) -> bool:
    """True if one of the two ranks has called on the groups of both, from no common thread."""
    for dump in source.many({one.rank, other.rank}).values():
        entries = dump.entries
        if entries is None or not (entries.thread >= 0).all():
            continue
        names = [group.name for group in entries.group_names]
        threads = [
            set(entries.thread[entries.group == names.index(call.group.name)].tolist())
            for call in (one, other)
            if call.group.name in names
        ]
        if len(threads) == 2 and all(threads) and not threads[0] & threads[1]:
            return True
    return False


def _in_usual_pauses(peers: dict[int, list[int]], source: DumpSource) -> set[int]:
    asked = dict(islice(peers.items(), FULL_RANKS))
    if not asked:
        return set()
    dumps = source.many({*asked, *(peer for others in asked.values() for peer in others)})
    return {
        rank
        for rank, others in asked.items()
        if rank in dumps
        and in_usual_pause(dumps[rank], [dumps[peer] for peer in others if peer in dumps])
    }


def _dumped_before(merged: MergedSummaries, group_table: GroupTable) -> Iterator[int]:
    """Ranks whose dumps are older than what their peers wait for them in.

    A copy makes a file younger, never older; one that is older by days has lost its time.
    """
    issued: dict[tuple[int, int], int] = {}
    for rank, summary in merged.ranks.items():
        for pending in summary.pending:
            if pending.seq is not None and pending.created_ns > 0:
                key = group_table.places[rank, pending.part], pending.seq
                issued[key] = min(issued.get(key, pending.created_ns), pending.created_ns)
    for (place, seq), when in issued.items():
        for rank, progress in group_table.groups[place].progress.items():
            known = merged.ranks[rank].activity.known_until_ns if rank in merged.ranks else ABSENT
            if known != ABSENT and progress.has_entered(seq) is False:
                if 0 < when - known < COPIED_LATER_NS:
                    yield rank
    for rank, summary in merged.ranks.items():
        for pending in summary.pending:
            group = group_table.groups[group_table.places[rank, pending.part]]
            other = pending.dst if op_of(pending.op).sends else pending.src
            if pending.seq is not None or not 0 <= other < len(group.members):
                continue
            peer = merged.ranks.get(group.members[other])
            known = peer.activity.known_until_ns if peer is not None else ABSENT
            if peer is not None and known != ABSENT:
                if 0 < pending.created_ns - known < COPIED_LATER_NS:
                    yield peer.rank


def _senders_behind(group: ResolvedGroup, merged: MergedSummaries) -> Iterator[int]:
    """Ranks whose peers have received more of them than their dumps know that they sent."""
    if not group.p2p or group.doubtful or group.misnamed:
        return
    for progress in group.progress.values():
        part = progress.part
        if part is None or part.gloo:
            continue
        for taken in part.channels:
            if taken.sends or not 0 <= taken.src < len(group.members) or not taken.done:
                continue
            sender = group.members[taken.src]
            summary, theirs = merged.ranks.get(sender), group.progress.get(sender)
            if summary is None or summary.truncated:
                continue
            mine = theirs.part if theirs is not None else None
            if not (summary.whole or (mine is not None and mine.counted)):
                continue
            sent = sum(
                channel.posted
                for channel in (mine.channels if mine is not None else ())
                if channel.sends and (channel.dst, channel.tag) == (taken.dst, taken.tag)
            )
            if sent < taken.done:
                yield sender


def _proved(group: ResolvedGroup, merged: MergedSummaries, table: UInt64) -> int:
    """The highest number that some member finished, so that all have entered it; 0 if none."""
    known = [
        min(one.unfinished, default=one.entered)
        for one in group.progress.values()
        if one.entered is not None
    ]
    lowest = min(known, default=0)
    found = 0
    sequences: Sequences | None = None
    if group.doubtful:
        return 0
    for rank, progress in group.progress.items():
        if progress.entered is None or progress.entered <= max(lowest, found):
            continue
        if progress.part is not None and progress.part.gloo:
            # It calls finished what timed out or failed.
            continue
        highest = min(progress.unfinished, default=progress.entered + 1) - 1
        if highest <= max(lowest, found) or not progress.finished(highest):
            continue
        sequences = sequences or sequences_of(merged, group, table)
        for seq in range(highest, max(lowest, found, highest - LOOKED_AT_NUMBERS), -1):
            code = sequences.code(rank, seq)
            if code != GAP and int(table[code][OPERATION]) in _HASHES:
                found = seq
                break
    return found


def without_state_of(merged: MergedSummaries, ranks: Iterable[int]) -> MergedSummaries:
    """The summaries with nothing known of where ``ranks`` stand; what they did is kept."""
    silent = {rank: replace(merged.ranks[rank], informative=False, pending=[]) for rank in ranks}
    return MergedSummaries(merged.ranks | silent, merged.histories, merged.signatures)
