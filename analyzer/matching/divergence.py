"""The first number of a group at which its members do not do the same, and who deviates."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hanglab.analyzer.flight_recorder.columns import Int32, Int64
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.calls import Call, Difference, Divergence, UnknownCall
from hanglab.analyzer.matching.divergent_call_site import find_divergent_call_site
from hanglab.analyzer.matching.group_history import (
    continuation,
    is_in_rounds,
    left_out,
    next_in_rounds,
    period_of,
)
from hanglab.analyzer.matching.later_votes import later_votes
from hanglab.analyzer.matching.line_votes import side_at_common_line
from hanglab.analyzer.matching.merging import SignatureHistory
from hanglab.analyzer.matching.missing_votes import MissingVotes, missing_votes_at
from hanglab.analyzer.matching.sequences import Sequences, calls_under
from hanglab.analyzer.matching.signatures import (
    ARGUMENT_DIFFERENCES,
    CODE,
    OPERATION,
    SITE,
    SIZE,
    UInt64,
    alike,
    argument_difference,
    call_site,
    comparable_dtypes,
    difference,
)
from hanglab.analyzer.matching.summary import GAP
from hanglab.analyzer.matching.thresholds import (
    AGREEING_SITES,
    COMPARED_HISTORIES,
    LONGEST_FUNCTION,
    LONGEST_SHIFT,
    SUSPECT_NUMBERS,
)


@dataclass
class GroupDivergences:
    """The numbers of one group at which its members do not do the same."""

    #: The first that may hold somebody up.
    first: Divergence | None = None
    #: Calls of one operation with arguments that differ, which all members got away with: the
    #: first of each kind of difference and each side that deviates.
    silent: list[Divergence] = field(default_factory=list)


def find_divergences(sequences: Sequences, lookup: CallLookup, *, stuck: bool) -> GroupDivergences:
    """``stuck`` says that some member waits in this group."""
    if len(sequences.histories) < 2:
        return GroupDivergences()
    found = _hard_divergences(sequences, lookup)
    hard = found.first
    if stuck:
        soft = _shifted(sequences, lookup, hard.seq if hard is not None else None)
        if soft is not None:
            found.first = soft
            # From there on it is other operations that meet.
            found.silent = [one for one in found.silent if one.seq < soft.seq]
        elif hard is not None and not hard.deviating:
            divergent = find_divergent_call_site(sequences, lookup, hard.seq)
            if divergent is not None and not _may_be_most(sequences, divergent):
                found.first = divergent
    return found


def _may_be_most(sequences: Sequences, divergent: Divergence) -> bool:
    """True if members that nobody heard of may have gone the same way."""
    missing_votes = missing_votes_at(sequences, divergent.seq)
    known = len(sequences.group.members) - len(missing_votes.unknown_calls)
    return missing_votes.may_be_majority(len(divergent.deviating), known)


def _overlap(a: SignatureHistory, b: SignatureHistory) -> tuple[int, Int32, Int32]:
    low = max(a.base, b.base)
    high = max(low, min(a.base + len(a.codes), b.base + len(b.codes)))
    return low, a.codes[low - a.base : high - a.base], b.codes[low - b.base : high - b.base]


def _suspects(sequences: Sequences) -> list[int]:
    """Sequence numbers at which some two members differ in what both know, call sites aside.

    Of two calls that meet again and again, the first time and the last.
    """
    histories = sequences.histories[:COMPARED_HISTORIES]
    found: set[int] = set()
    for i, a in enumerate(histories):
        for b in histories[i + 1 :]:
            low, mine, others = _overlap(a, b)
            places = np.flatnonzero((mine != others) & (mine != GAP) & (others != GAP))
            if not len(places):
                continue
            x, y = sequences.table[mine[places]], sequences.table[others[places]]
            differ = (x != y) & (x != 0) & (y != 0)
            differ[:, SITE] = False
            places = places[differ.any(axis=1)]
            pairs = np.stack([mine[places], others[places]], axis=1)
            firsts = np.unique(pairs, axis=0, return_index=True)[1]
            lasts = len(pairs) - 1 - np.unique(pairs[::-1], axis=0, return_index=True)[1]
            kept = sorted({*firsts.tolist(), *lasts.tolist()})[:SUSPECT_NUMBERS]
            found.update((places[kept] + low).tolist())
    return sorted(found)[:SUSPECT_NUMBERS]


@dataclass
class _Side:
    """Members that do the same under one number; the first of them is known best."""

    call: Call
    code: int
    ranks: list[int]
    #: Members besides that went along with it later.
    later: int = 0

    @property
    def votes(self) -> int:
        return len(self.ranks) + self.later


def _sides(sequences: Sequences, lookup: CallLookup, seq: int) -> list[_Side]:
    by_code: dict[int, list[int]] = {}
    for rank in sequences.group.members:
        code = sequences.code(rank, seq)
        if code != GAP:
            by_code.setdefault(code, []).append(rank)

    def best_known(item: tuple[int, list[int]]) -> tuple[bool, int, list[int]]:
        # A dump without stacks tells the operation alone, and can speak for no other's line.
        code, ranks = item
        return not _site(sequences, code), -len(ranks), ranks

    sides: list[_Side] = []
    for code, ranks in sorted(by_code.items(), key=best_known):
        call = lookup.collective(ranks[0], sequences.group, seq)
        if call is None:
            continue
        for side in sides:
            if difference(side.call, call, sites=False) is None:
                side.ranks += ranks
                break
        else:
            sides.append(_Side(call, code, list(ranks)))
    return sorted(sides, key=lambda side: (-len(side.ranks), min(side.ranks)))


def _hard_divergences(sequences: Sequences, lookup: CallLookup) -> GroupDivergences:
    found = GroupDivergences()
    kinds = set()
    #: Calls that met before and went on.
    harmless: set[frozenset[int]] = set()
    for seq in _suspects(sequences):
        sides = _sides(sequences, lookup, seq)
        if len(sides) < 2:
            continue
        codes = frozenset(side.code for side in sides)
        if codes in harmless:
            continue
        divergence = _judge(sequences, lookup, seq, sides)
        if not _is_silent(sequences, divergence):
            found.first = divergence
            return found
        harmless.add(codes)
        kind = divergence.difference, divergence.deviating
        if kind not in kinds:
            kinds.add(kind)
            found.silent.append(divergence)
    return found


def _is_silent(sequences: Sequences, divergence: Divergence) -> bool:
    """True if only arguments differ, and nobody waits in the operation or because of it.

    An operation that went wrong may leave its connections in disorder, and then the next one
    stalls: everybody has entered that, and nothing was finished in between.
    """
    if divergence.difference not in ARGUMENT_DIFFERENCES or divergence.skipped:
        return False
    progress = [sequences.group.progress.get(rank) for rank in sequences.group.members]
    known = [one for one in progress if one is not None and one.entered is not None]
    on_their_way = [
        rank
        for rank in divergence.calls
        if (one := sequences.group.progress.get(rank)) is None or one.entered is None
    ]
    if on_their_way:
        # Of ranks on their way nothing is known but what they called, and how it ended.
        went_on = (sequences.code(rank, divergence.seq + 1) != GAP for rank in divergence.calls)
        ended = (one is not None and one.showed_finished(divergence.seq) for one in progress)
        if not (any(went_on) or any(ended)):
            return False
    held = min((min(one.unfinished) for one in known if one.unfinished), default=None)
    if held is None or held > divergence.seq + 1:
        return True
    return held > divergence.seq and (
        any(one.has_entered(held) is False for one in known)
        or any(sequences.code(rank, held) == GAP for rank in on_their_way)
    )


def _judge(sequences: Sequences, lookup: CallLookup, seq: int, sides: list[_Side]) -> Divergence:
    missing_votes = missing_votes_at(sequences, seq)
    later = later_votes(sequences, seq, [side.ranks for side in sides], missing_votes)
    for place in later.values():
        sides[place].later += 1
    sides.sort(key=lambda side: (-side.votes, min(side.ranks)))
    unknown_calls = {r: why for r, why in missing_votes.unknown_calls.items() if r not in later}
    missing_votes = replace(missing_votes, unknown_calls=unknown_calls)
    conforming = _conforming(sequences, seq, sides, missing_votes)
    if conforming and not _keep_together(sequences, conforming.ranks, seq, (OPERATION,)):
        conforming = None
    ranks = sorted(rank for side in sides for rank in side.ranks)
    deviating: tuple[int, ...] = ()
    if conforming is not None:
        deviating = tuple(sorted(r for side in sides if side is not conforming for r in side.ranks))
    base = conforming or sides[0]
    others = [side for side in sides if side is not base]
    beside = _at_line_of(sequences, lookup, seq, base, others[0])
    kind = _kind(sequences, seq, beside or base, others[0])
    in_order = not _goes_on(sequences, seq, base) and all(
        _goes_on(sequences, seq, side) for side in others
    )
    skipped = (
        bool(deviating)
        and not in_order
        and beside is None
        and all(
            _skips(sequences, seq, base.ranks[0], side, kind)
            or _lies_behind(sequences, seq, base, side)
            for side in others
        )
    )
    # Most left out what all did there in each round before, or the few missed what made them.
    contradicted = (
        bool(deviating)
        and in_order
        and all(_skips(sequences, seq, side.ranks[0], base, kind) for side in others)
        and all(
            is_in_rounds(
                sequences.signatures(side.ranks[0], None, seq), sequences.signature(base.code)
            )
            for side in others
        )
    )
    if contradicted:
        deviating, skipped = (), False
        kind = Difference.OPERATION if kind in ARGUMENT_DIFFERENCES else kind
    return Divergence(
        group=sequences.group.group,
        seq=seq,
        difference=kind,
        calls=calls_under(sequences, lookup, seq, ranks, deviating),
        deviating=deviating,
        candidates=() if deviating else tuple(ranks),
        skipped=skipped,
        contradicted=contradicted,
        finished=all(
            progress.finished(seq)
            for rank in ranks
            if (progress := sequences.group.progress.get(rank)) is not None
        ),
        unknown_calls=missing_votes.unknown_calls,
        unlisted=missing_votes.unlisted > 0,
    )


def _at_line_of(
    sequences: Sequences, lookup: CallLookup, seq: int, base: _Side, other: _Side
) -> _Side | None:
    """A side as those of it show it who called from another's line, where not all did.

    Branches by rank have lines of their own: what was called otherwise from one of them is told by
    its own.
    """
    site = _site(sequences, other.code)
    there = [rank for rank in base.ranks if _site(sequences, sequences.code(rank, seq)) == site]
    if not site or not there or len(there) == len(base.ranks):
        return None
    call = lookup.collective(there[0], sequences.group, seq)
    return None if call is None else _Side(call, sequences.code(there[0], seq), there)


def _conforming(
    sequences: Sequences, seq: int, sides: list[_Side], missing_votes: MissingVotes
) -> _Side | None:
    """The side that does right: the majority, or who goes on as the group did before."""
    known = sum(side.votes for side in sides)
    if missing_votes.is_majority(sides[0].votes, known, sides[1].votes):
        return sides[0]
    fitting = []
    pattern: set[Hashable] = set()
    common = _agreed_before(sequences, seq, [side.ranks[0] for side in sides])
    for side in sides:
        past = sequences.signatures(side.ranks[0], None, seq)
        period = period_of(past) or 0
        expected = continuation(past, 1) if common >= period else []
        now = sequences.signature(side.code)
        # Without call sites a pattern of operations proves too little.
        if expected and now is not None and now[-1] and expected[0] == now:
            fitting.append(side)
            pattern = set(past[-period:])
    if not fitting:
        lines = [
            [_site(sequences, sequences.code(rank, seq)) for rank in side.ranks]
            + [_site(sequences, side.code)] * side.later
            for side in sides
        ]
        place = side_at_common_line(lines, missing_votes)
        return None if place is None else sides[place]
    if len(fitting) != 1:
        return None
    (steady,) = fitting
    for side in sides:
        if side is steady:
            continue
        # A call that is new may be due: the first evaluation, from which some went on.
        if sequences.signature(side.code) not in pattern or not missing_votes.confirms_pattern(
            steady.votes, side.votes, known, is_ahead=True
        ):
            return None
    return steady


def _agreed_before(sequences: Sequences, seq: int, ranks: list[int]) -> int:
    """Count of numbers just before ``seq`` for which the ranks are known to have done the same."""
    pasts = [sequences.signatures(rank, None, seq)[::-1] for rank in ranks]
    count = 0
    for together in zip(*pasts, strict=False):
        if together[0] is None or any(other != together[0] for other in together):
            break
        count += 1
    return count


def _kind(sequences: Sequences, seq: int, base: _Side, other: _Side) -> Difference:
    found = difference(base.call, other.call)
    if found is Difference.SIZE and not (
        _site(sequences, base.code) and _site(sequences, other.code)
    ):
        dtypes = {comparable_dtypes(side.call.arguments) for side in (base, other)}
        if len(dtypes) > 1 and None not in dtypes:
            # Nothing says that it is one line, and hardly anybody mistakes both in it.
            return Difference.OPERATION
    if found is Difference.CALL_SITE:
        # The same place of the program may be two lines, if it has been so before.
        pair = (_site(sequences, base.code), _site(sequences, other.code))
        before = zip(
            reversed(sequences.signatures(base.ranks[0], None, seq)),
            reversed(sequences.signatures(other.ranks[0], None, seq)),
            strict=False,
        )
        if any(x and y and (x[-1], y[-1]) == pair for x, y in before):
            return argument_difference(base.call, other.call) or Difference.SIZE
    assert found is not None
    return found


def _lies_behind(sequences: Sequences, seq: int, base: _Side, side: _Side) -> bool:
    """True if a side is further on in straight code than its peers, who are there the first time.

    The operation at which they are was left out on the way.  In a loop the pattern of its
    steps tells, and where the peers went on it is seen whether they came to the same line.
    """
    rank = base.ranks[0]
    if len(sequences.signatures(rank, seq, None)) > 1:
        return False
    past = {one[-1] for one in sequences.signatures(rank, None, seq) if one is not None}
    if past & {_site(sequences, base.code), _site(sequences, side.code)}:
        return False
    theirs, mine = (CODE.user_frames(call.stack)[::-1] for call in (base.call, side.call))
    parted = next((pair for pair in zip(theirs, mine, strict=False) if pair[0] != pair[1]), None)
    if parted is None:
        return False
    there, here = parted
    same_function = (there.file, there.function) == (here.file, here.function)
    return same_function and 0 < here.line - there.line <= LONGEST_FUNCTION


def _goes_on(sequences: Sequences, seq: int, side: _Side) -> bool:
    """True if a side calls what comes next in the rounds that the group kept until then."""
    now = sequences.signature(side.code)
    due = next_in_rounds(sequences.signatures(side.ranks[0], None, seq))
    return now is not None and due is not None and alike(due, now)


def _site(sequences: Sequences, code: int) -> int:
    return int(sequences.table[code][SITE])


def _skips(sequences: Sequences, seq: int, base: int, side: _Side, kind: Difference) -> bool:
    """True if a side goes on with its peers' operations, with some left out."""
    mine = sequences.signatures(side.ranks[0], seq, None)
    past = sequences.signatures(base, None, seq)
    peers = sequences.signatures(base, seq, None)
    known = len(peers)
    peers += continuation(past + peers, len(past) + len(mine))
    if not any(signature and signature[-1] for signature in mine):
        # Without call sites on this side, compare the rest.
        peers = [one and (*one[:-1], 0) for one in peers]
    same_site = kind in (Difference.SIZE, Difference.DTYPE, Difference.ROOT, Difference.REDUCE_OP)
    if same_site and len(mine) < 2 and mine and mine[0] and mine[0][-1]:
        # One call from the same line with other arguments is just that.
        return False
    both = min(len(mine), known)
    if same_site and both > 1 and all(map(alike, mine[1:both], peers[1:both])):
        # Whoever has left something out is ahead of its peers from there on.
        return False
    return left_out(mine, peers, same=alike) is not None


def _shifted(sequences: Sequences, lookup: CallLookup, before: int | None) -> Divergence | None:
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
            low, mine, others = _overlap(a, b)
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


def _goes_along(sequences: Sequences, rank: int, side: SignatureHistory, seq: int) -> bool:
    """True if a rank called from the lines of that history until then, as far as is known."""
    base, codes = sequences.of(rank)
    if not base <= seq < base + len(codes):
        return False
    low = max(base, side.base)
    mine = codes[low - base : seq - base + 1]
    theirs = side.codes[low - side.base : seq - side.base + 1]
    known = (mine != GAP) & (theirs != GAP)
    columns: Int64 = np.array([OPERATION, SITE])
    same = sequences.table[mine[known]][:, columns] == sequences.table[theirs[known]][:, columns]
    return bool(known[-1:].all() and same.all())


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


def _keep_together(
    sequences: Sequences, ranks: list[int], seq: int, columns: Sequence[int]
) -> bool:
    """True if most of a side's ranks do the same from a number on, as far as is known.

    By these columns of signatures.  Where each takes a way of its own at a time of its own, nobody
    is the exception.
    """
    histories = sequences.histories[:COMPARED_HISTORIES]
    counts = [(one, n) for one in histories if (n := sum(rank in one.windows for rank in ranks))]
    compared = sum(count for _, count in counts)
    return not counts or any(
        2 * sum(n for other, n in counts if _agree(sequences.table, one, other, seq, columns))
        > compared
        for one, _ in counts
    )


def _agree(
    table: UInt64,
    one: SignatureHistory,
    other: SignatureHistory,
    seq: int,
    columns: Sequence[int],
) -> bool:
    low, mine, theirs = _overlap(one, other)
    mine, theirs = mine[max(0, seq - low) :], theirs[max(0, seq - low) :]
    known = (mine != GAP) & (theirs != GAP)
    kept: Int64 = np.array(columns)
    return bool((table[mine[known]][:, kept] == table[theirs[known]][:, kept]).all())


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
    if not all(
        _keep_together(sequences, side, seq, (OPERATION, SITE)) for side in (leaders, followers)
    ):
        return None
    sites = {_site(sequences, int(side.codes[seq - side.base])) for side in (ahead, behind)}
    if _have_met(sequences, sites, seq):
        return None
    missing_votes = missing_votes_at(sequences, seq)
    # Who does neither, or has not come yet, is on nobody's side.
    for rank in set(members).difference(leaders, followers):
        code = sequences.code(rank, seq)
        if code != GAP and not _site(sequences, code):
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
