"""Numbers of a group under which its members call what does not fit, and who does right."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass, field, replace

import numpy as np

from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.calls import Call, Difference, Divergence
from hanglab.analyzer.matching.group_history import (
    continuation,
    is_in_rounds,
    left_out,
    next_in_rounds,
    period_of,
)
from hanglab.analyzer.matching.later_votes import later_votes
from hanglab.analyzer.matching.line_votes import side_at_common_line
from hanglab.analyzer.matching.missing_votes import MissingVotes, missing_votes_at
from hanglab.analyzer.matching.past_differences import are_one_operation, is_past
from hanglab.analyzer.matching.sequences import Sequences, calls_under, keep_together
from hanglab.analyzer.matching.signatures import (
    ARGUMENT_DIFFERENCES,
    CODE,
    OPERATION,
    SITE,
    alike,
    argument_difference,
    comparable_dtypes,
    difference,
)
from hanglab.analyzer.matching.summary import GAP
from hanglab.analyzer.matching.thresholds import (
    COMPARED_HISTORIES,
    LONGEST_FUNCTION,
    MET_APART,
    SUSPECT_NUMBERS,
)
from hanglab.recorder.case.operations import op_of


@dataclass
class GroupDivergences:
    """The numbers of one group at which its members do not do the same."""

    #: The first that may hold somebody up.
    first: Divergence | None = None
    #: Calls of one operation with arguments that differ, which all members got away with: the
    #: first of each kind of difference and each side that deviates.
    silent: list[Divergence] = field(default_factory=list)


def _suspects(sequences: Sequences) -> list[int]:
    """Sequence numbers at which some two members differ in what both know, call sites aside.

    Of two calls that meet again and again, the first time and the last.
    """
    histories = sequences.histories[:COMPARED_HISTORIES]
    found: set[int] = set()
    for i, a in enumerate(histories):
        for b in histories[i + 1 :]:
            low, mine, others = a.overlap(b)
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
    """Members that do the same under one number; the first of them is known best, farthest back."""

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
        return not sequences.site(code), -len(ranks), ranks

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
    for side in sides:
        # Each buffer reaches back to a number of its own.
        side.ranks.sort(
            key=lambda rank: (rank not in by_code[side.code], sequences.of(rank)[0], rank)
        )
    return sorted(sides, key=lambda side: (-len(side.ranks), min(side.ranks)))


def call_differences(sequences: Sequences, lookup: CallLookup) -> GroupDivergences:
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
        names_differ = divergence.difference is Difference.OPERATION and not divergence.skipped
        if not (
            is_past(sequences, seq, [side.ranks for side in sides])
            if names_differ
            else _is_silent(sequences, divergence)
        ):
            found.first = divergence
            return found
        harmless.add(codes)
        if names_differ and are_one_operation(divergence.calls.values()):
            continue
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
    beneath = _beneath_boundary(sequences, sides) & missing_votes.unknown_calls.keys()
    # More of them than of those that are known may be on their way to that call, all alike.
    heard = {*later, *(beneath if len(beneath) < sides[0].votes else ())}
    unknown_calls = {r: why for r, why in missing_votes.unknown_calls.items() if r not in heard}
    missing_votes = replace(missing_votes, unknown_calls=unknown_calls)
    conforming = _conforming(sequences, seq, sides, missing_votes)
    if conforming and not keep_together(sequences, conforming.ranks, seq, (OPERATION,)):
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


def _beneath_boundary(sequences: Sequences, sides: list[_Side]) -> frozenset[int]:
    """Ranks that cannot have made the call of any side but the first.

    These calls passed the Python boundary, and of those such a rank made none there.
    """
    fewer = {rank for side in sides[1:] for rank in side.ranks}
    return sequences.boundary_only if fewer <= sequences.boundary_only else frozenset()


def _at_line_of(
    sequences: Sequences, lookup: CallLookup, seq: int, base: _Side, other: _Side
) -> _Side | None:
    """A side as those of it show it who called from another's line, where not all did.

    Branches by rank have lines of their own: what was called otherwise from one of them is told by
    its own.
    """
    site = sequences.site(other.code)
    there = [rank for rank in base.ranks if sequences.site(sequences.code(rank, seq)) == site]
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
        calls = [
            [sequences.row(sequences.code(rank, seq)) for rank in side.ranks]
            + [sequences.row(side.code)] * side.later
            for side in sides
        ]
        place = side_at_common_line(calls, missing_votes)
        return None if place is None else sides[place]
    if len(fitting) != 1:
        return None
    (steady,) = fitting
    others = [rank for side in sides if side is not steady for rank in side.ranks]
    ways = {sequences.site(sequences.code(rank, seq)) for rank in others}
    if len(ways) > 1 and steady.votes <= len(others):
        return None  # Several went ways of their own: nobody need be right.
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
    if found is Difference.SIZE and not (sequences.site(base.code) and sequences.site(other.code)):
        dtypes = {comparable_dtypes(side.call.arguments) for side in (base, other)}
        if len(dtypes) > 1 and None not in dtypes:
            # Nothing says that it is one line, and hardly anybody mistakes both in it.
            return Difference.OPERATION
    if found is Difference.CALL_SITE:
        # The same place of the program may be two lines, if it has been so before.
        if _are_lines_of_one_place(sequences, seq, base, other) or _usually_calls(
            sequences, seq, base, other
        ):
            return argument_difference(base.call, other.call) or Difference.SIZE
    assert found is not None
    return found


def _are_lines_of_one_place(sequences: Sequences, seq: int, base: _Side, other: _Side) -> bool:
    """True if two sides made these two calls, or all of that operation, from lines of their own.

    Whoever leads has a branch of its own.
    """
    if len({side.ranks[0] in sequences.boundary_only for side in (base, other)}) > 1:
        return False  # The boundary knows the line alone, and a dump the way to it: none is equal.
    mine, theirs = sequences.site(base.code), sequences.site(other.code)
    operation = sequences.table[base.code][OPERATION]
    known = [
        (x, y)
        for x, y in zip(
            reversed(sequences.signatures(base.ranks[0], None, seq)),
            reversed(sequences.signatures(other.ranks[0], None, seq)),
            strict=False,
        )
        if x and y and x[SITE] and y[SITE] and x[OPERATION] == y[OPERATION]
    ]
    met = [(x[SITE], y[SITE]) for x, y in known if x[OPERATION] == operation]
    if (mine, theirs) in met:
        return True
    # Or they have come into branches of their own, and made the last calls there, whatever these.
    last = [(x[SITE], y[SITE]) for x, y in known[:MET_APART]]
    return _are_of_branches_since(sequences, seq, base, other) or any(
        len(pairs) >= MET_APART
        and all(x != mine and y != theirs for x, y in pairs)
        and _are_apart([(mine, theirs), *pairs])
        for pairs in (met, last)
    )


def _are_of_branches_since(sequences: Sequences, seq: int, base: _Side, other: _Side) -> bool:
    """True if both went on with the same calls, each from lines of its own, these two among them.

    Of a call left out, or one too many, the numbers of all that follows are shifted.
    """
    pasts = (sequences.signatures(one.ranks[0], seq, None) for one in (base, other))
    (first, *since) = zip(*pasts, strict=False)
    called = [(x, y) for x, y in since if x and y]
    lines = [(x[SITE], y[SITE]) for x, y in called]
    return (
        len(called) == len(since)
        and first[0] is not None
        and first[1] is not None
        and (first[0][SITE], first[1][SITE]) in lines
        and len({*lines}) >= MET_APART
        and all(x[:SITE] == y[:SITE] for x, y in called)
        and _are_apart(lines)
    )


def _are_apart(lines: Collection[tuple[int, int]]) -> bool:
    """True if no line of one side is one of the other; who is ahead, or behind, comes to those."""
    mine, theirs = zip(*lines, strict=True)
    return {*mine}.isdisjoint(theirs)


def _usually_calls(sequences: Sequences, seq: int, base: _Side, other: _Side) -> bool:
    """True if the line of the other side makes the base's very call wherever else it makes any."""
    theirs = sequences.site(other.code)
    first, codes = sequences.of(other.ranks[0])
    elsewhere = [code for n, code in enumerate(codes.tolist(), first) if n != seq and code != GAP]
    same = [code for code in elsewhere if sequences.site(code) == theirs]
    call = sequences.table[base.code][:SITE]
    return bool(same) and all((sequences.table[code][:SITE] == call).all() for code in same)


def _lies_behind(sequences: Sequences, seq: int, base: _Side, side: _Side) -> bool:
    """True if a side is further on in straight code than its peers, who are there the first time.

    The operation at which they are was left out on the way.  In a loop the pattern of its
    steps tells, and where the peers went on it is seen whether they came to the same line.  Of one
    who may be the root of the operation it is told by neither: a root has a branch of its own.
    """
    rank = base.ranks[0]
    if len(side.ranks) == 1 and base.call.op == side.call.op and op_of(side.call.op).rooted:
        return False
    first, codes = sequences.of(rank)
    if first > 1 or GAP in codes[: seq - first].tolist():
        return False  # Nobody knows whether they have been there before.
    if len(sequences.signatures(rank, seq, None)) > 1:
        return False
    past = {one[-1] for one in sequences.signatures(rank, None, seq) if one is not None}
    if past & {sequences.site(base.code), sequences.site(side.code)}:
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
