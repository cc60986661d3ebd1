"""Members that call one operation from the lines of different ones: left out, or put in."""

from __future__ import annotations

import numpy as np

from hanglab.analyzer.flight_recorder.columns import Int32, Int64
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.calls import Difference, Divergence, UnknownCall
from hanglab.analyzer.matching.group_history import (
    continuation,
    is_in_rounds,
    next_in_rounds,
)
from hanglab.analyzer.matching.merging import SignatureHistory
from hanglab.analyzer.matching.missing_votes import missing_votes_at
from hanglab.analyzer.matching.sequences import Sequences, calls_under, keep_together
from hanglab.analyzer.matching.signatures import (
    OPERATION,
    SITE,
    SIZE,
    UInt64,
    call_site,
)
from hanglab.analyzer.matching.summary import GAP
from hanglab.analyzer.matching.thresholds import (
    AGREEING_SITES,
    COMPARED_HISTORIES,
    LONGEST_SHIFT,
)


def line_shift(sequences: Sequences, lookup: CallLookup, before: int | None) -> Divergence | None:
    """Members that call the same operation from the places of different ones.

    Different lines for one operation are normal (a branch on the rank), as long
    as the same lines go together.  A rank whose lines are all ahead of its
    peers' from some number on has left something out there; behind, put
    something in.
    """
    histories = sequences.histories[:COMPARED_HISTORIES]
    best: tuple[int, SignatureHistory, SignatureHistory, int] | None = None
    for a in histories:
        for b in histories:
            if a is b:
                continue
            low, mine, others = a.overlap(b)
            size = len(mine) if before is None else max(0, min(len(mine), before - low))
            place = _first_break(sequences.table, mine[:size], others[:size])
            if place is None or (best is not None and low + place > best[0]):
                continue
            shift = _shift_of(sequences.table, a, b, low + place, before)
            # In rounds who is ahead by one is behind by all the others of a round.
            if shift and (best is None or (low + place, shift) < (best[0], best[3])):
                best = (low + place, a, b, shift)
    if best is None:
        return None
    seq, ahead, behind, shift = best
    known = len(ahead.codes) - (seq - ahead.base), len(behind.codes) - (seq - behind.base) - shift
    few = min(known) < AGREEING_SITES
    return _judge_shift(sequences, lookup, seq, ahead, behind, alone=before is None, few=few)


def _first_break(table: UInt64, mine: Int32, others: Int32) -> int | None:
    """First place at which two call sites meet that used to go with other ones."""
    differ = (mine != others) & (mine != GAP) & (others != GAP)
    if not differ.any():
        return None
    known = (mine != GAP) & (others != GAP)
    a = np.where(known, table[mine, SITE], 0)
    b = np.where(known, table[others, SITE], 0)
    partner: dict[int, int] = {}
    reverse: dict[int, int] = {}
    for place, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        if not x or not y:
            continue
        broken = partner.setdefault(x, y) != y or reverse.setdefault(y, x) != x
        # One line on both sides is none, whatever it met in a branch of one of them.
        if broken and x != y:
            return place
    return None


def _shift_of(
    table: UInt64,
    ahead: SignatureHistory,
    behind: SignatureHistory,
    seq: int,
    differ_at: int | None,
) -> int:
    """Operations by which ``ahead`` is ahead of ``behind`` from ``seq`` on; 0 if it is not.

    It explains what they differ in at ``differ_at``.
    """
    mine = ahead.codes[seq - ahead.base :]
    others = behind.codes[seq - behind.base :]
    for shift in range(1, min(LONGEST_SHIFT, len(others) - 1) + 1):
        size = min(len(mine), len(others) - shift)
        # A few calls may agree by chance; then it has to be behind by just as many.
        by_count = len(others) - len(mine) == shift
        if not (size >= AGREEING_SITES or (size > 0 and by_count)):
            continue
        if differ_at is not None and not by_count and size <= differ_at - seq:
            continue
        if not _same(table, mine[:size], others[shift : shift + size]):
            continue
        # Behind what was left out, rounds that repeat themselves agree without a shift, too.
        both = min(len(mine), len(others))
        first = min(shift, both - 1)
        if by_count or not _same(table, mine[first:both], others[first:both]):
            return shift
    return 0


def _same(table: UInt64, mine: Int32, others: Int32) -> bool:
    if (mine == GAP).any() or (others == GAP).any():
        return False
    columns: Int64 = np.array([OPERATION, SIZE, SITE])
    return bool((table[mine][:, columns] == table[others][:, columns]).all())


def _goes_along(
    sequences: Sequences, rank: int, side: SignatureHistory, seq: int, *, by_lines: bool = False
) -> bool:
    """True if a rank called the same as that history until then, and there from the same line.

    Before that it may have had lines of its own, each of which goes with one of the history's; but
    for ``by_lines``.
    """
    base, codes = sequences.of(rank)
    if not base <= seq < base + len(codes):
        return False
    low = max(base, side.base)
    mine = codes[low - base : seq - base + 1]
    theirs = side.codes[low - side.base : seq - side.base + 1]
    known = (mine != GAP) & (theirs != GAP)
    table = sequences.table
    same = table[mine[known], OPERATION] == table[theirs[known], OPERATION]
    on_line = table[mine[-1], SITE] == table[theirs[-1], SITE]
    in_step = _first_break(table, mine, theirs) is None
    if by_lines:
        in_step = bool((table[mine[known], SITE] == table[theirs[known], SITE]).all())
    return bool(known[-1:].all() and on_line and same.all()) and in_step


def _have_met(sequences: Sequences, sites: set[int], seq: int) -> bool:
    """True if members called from these lines under one number before, and went on from it."""
    numbers: list[set[int]] = []
    for site in sites:
        there: set[int] = set()
        for one in sequences.histories[:COMPARED_HISTORIES]:
            codes = one.codes[: max(0, seq - one.base)]
            mine = (codes != GAP) & (sequences.table[codes, SITE] == site)
            there.update((np.flatnonzero(mine) + one.base).tolist())
        numbers.append(there)
    return len(numbers) > 1 and bool(set.intersection(*numbers))


def _explains_hold(sequences: Sequences, seq: int, leaders: list[int], *, few: bool) -> bool:
    """True if it may be for a shift from a number on that somebody waits in the group.

    Calls that differ in lines alone do meet: in the end those who are ahead have none for the last
    of the others, or, by more calls than a ``few``, come to that very number in another order than
    to other groups.
    """
    progress = sequences.group.progress
    reached: dict[int, int] = {}
    for rank, one in progress.items():
        open_since = min(one.unfinished, default=0)
        if open_since >= seq:
            reached[rank] = open_since
    ended = {n: sum(p.finished(n) for p in progress.values()) for n in set(reached.values())}
    # Of what most have ended the dump of a rank was taken a moment before.
    earlier = {rank for rank, number in reached.items() if 2 * ended[number] > len(progress)}
    if reached.keys() <= earlier:
        return False
    held = min(number for rank, number in reached.items() if rank not in earlier)
    come = {r: None if r in earlier else one.has_entered(held) for r, one in progress.items()}
    if False not in come.values():
        return held == seq and not few
    return any(come.get(rank) is False for rank in leaders) and not any(
        reached.get(rank) == held for rank in leaders
    )


def _judge_shift(
    sequences: Sequences,
    lookup: CallLookup,
    seq: int,
    ahead: SignatureHistory,
    behind: SignatureHistory,
    *,
    alone: bool,
    few: bool,
) -> Divergence | None:
    members = sequences.group.members
    leaders, followers = (
        [rank for rank in members if _goes_along(sequences, rank, side, seq)]
        for side in (ahead, behind)
    )
    if (
        not leaders
        or not followers
        or (alone and not _explains_hold(sequences, seq, leaders, few=few))
    ):
        return None
    for ranks, side in ((leaders, ahead), (followers, behind)):
        same = [rank for rank in ranks if _goes_along(sequences, rank, side, seq, by_lines=True)]
        if not keep_together(sequences, same, seq, (OPERATION, SITE)):
            return None
    sites = {sequences.site(int(side.codes[seq - side.base])) for side in (ahead, behind)}
    if _have_met(sequences, sites, seq):
        return None
    missing_votes = missing_votes_at(sequences, seq)
    # Who does neither, or has not come yet, is on nobody's side.
    for rank in set(members).difference(leaders, followers):
        code = sequences.code(rank, seq)
        if code != GAP and not sequences.site(code):
            missing_votes.unknown_calls[rank] = UnknownCall.UNLINED
    known = len(members) - len(missing_votes.unknown_calls.keys() & members)
    conforming: list[int] | None = None
    if missing_votes.is_majority(max(len(leaders), len(followers)), known):
        conforming = max(leaders, followers, key=len)
    else:
        fitting = []
        for ranks, others in ((leaders, followers), (followers, leaders)):
            past = sequences.signatures(ranks[0], None, seq)
            expected = continuation(past, 1)
            now, theirs = (sequences.signature(sequences.code(r[0], seq)) for r in (ranks, others))
            borne_out = is_in_rounds(past, theirs) and missing_votes.confirms_pattern(
                len(ranks), len(others), known, is_ahead=others is leaders
            )
            if expected and expected[0] == now and borne_out:
                fitting.append(ranks)
        conforming = fitting[0] if len(fitting) == 1 else None
    deviating: tuple[int, ...] = ()
    if conforming is not None:
        deviating = tuple(leaders if conforming is followers else followers)
    past = sequences.signatures(followers[0], None, seq)
    due = next_in_rounds(past)
    first_code, code = (sequences.code(one[0], seq) for one in (leaders, followers))
    # Those who are ahead left out what all did there in each round before, and are more.
    contradicted = (
        deviating == tuple(followers)
        and due is not None
        and due == sequences.signature(code)
        and is_in_rounds(past, sequences.signature(first_code))
    )
    if contradicted:
        deviating = ()
    ranks = sorted(leaders + followers)
    calls = calls_under(sequences, lookup, seq, ranks, deviating)
    first, last = calls.get(leaders[0]), calls.get(followers[0])
    if first is None or last is None or call_site(first.stack) is None:
        return None
    return Divergence(
        group=sequences.group.group,
        seq=seq,
        difference=Difference.CALL_SITE,
        calls=calls,
        deviating=deviating,
        candidates=() if deviating else tuple(ranks),
        skipped=bool(deviating) and deviating == tuple(leaders),
        contradicted=contradicted,
        finished=True,
        unknown_calls=missing_votes.unknown_calls,
        unlisted=missing_votes.unlisted > 0,
    )
