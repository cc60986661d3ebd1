"""Sizes of an all_to_all: what its members send against what the others expect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from math import prod

from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.calls import Call, Difference, Divergence, UnknownCall
from hanglab.analyzer.matching.groups import ResolvedGroup
from hanglab.analyzer.matching.missing_votes import outvotes
from hanglab.analyzer.matching.shifted_exchanges import find_shifted_member
from hanglab.analyzer.matching.signatures import call_site, splits_of
from hanglab.analyzer.matching.thresholds import (
    COMPARED_EXCHANGES,
    COMPARED_SPLITS,
    FIXED_EXCHANGES,
)
from hanglab.recorder.case.operations import op_of
from hanglab.recorder.case.progress_records import SplitLists


def find_size_mismatch(group: ResolvedGroup, lookup: CallLookup) -> Divergence | None:
    """A divergence at the oldest unfinished all_to_all of the group whose sizes do not fit."""
    unfinished = [min(s.unfinished) for s in group.progress.values() if s.unfinished]
    if not unfinished or len(group.members) > COMPARED_SPLITS:
        return None
    seq = min(unfinished)
    lookup.prefetch(group.members)
    calls: dict[int, Call] = {}
    for rank in group.members:
        call = lookup.collective(rank, group, seq)
        if call is not None and not op_of(call.op).splits:
            return None
        if call is not None:
            calls[rank] = call
    if len(calls) < 2:
        return None
    pairs = _mismatched_pairs(group.members, calls)
    if not pairs and _total_differs(group.members, calls):
        # Who has finished has exchanged with everybody what everybody expected of it.
        ended = {rank for rank, one in group.progress.items() if one.showed_finished(seq)}
        held = [r for r, call in calls.items() if not call.completed and r not in ended]
        pairs = [(rank, rank) for rank in held] if len(held) > 1 else []
    if not pairs:
        return None
    elsewhere = _at_another_line(calls)
    if (
        elsewhere
        and len(pairs) > 1
        and all(a == b or a in elsewhere or b in elsewhere for a, b in pairs)
    ):
        # It is another operation of theirs, so its sizes have no reason to fit.  One size alone may
        # be that of the peer that it is for.
        return Divergence(
            group=group.group,
            seq=seq,
            difference=Difference.CALL_SITE,
            calls=calls,
            deviating=tuple(sorted(elsewhere)),
            candidates=(),
            unknown_calls=_unknown_calls(group, calls, seq),
        )
    involved = sorted({rank for pair in pairs for rank in pair})
    common = [rank for rank in involved if all(rank in pair for pair in pairs)]
    alone = tuple(common) if len(pairs) > 1 and len(common) == 1 else ()
    if len(involved) > 2 and not alone:
        alone = _out_of_turn(group, lookup, seq)
    shifted = find_shifted_member(group, lookup, seq) if len(involved) > 2 and not alone else None
    if shifted is not None:
        alone = (shifted.rank,)
    return Divergence(
        group=group.group,
        seq=seq,
        difference=Difference.SPLITS if shifted is None else Difference.OPERATION,
        calls=calls,
        deviating=alone,
        candidates=() if alone else tuple(involved),
        skipped=shifted is not None and shifted.left_out,
        unknown_calls=_unknown_calls(group, calls, seq),
    )


def _at_another_line(calls: Mapping[int, Call]) -> set[int]:
    """Ranks whose call is not from the line of most; none where no line is that of most."""
    sites = {rank: call_site(call.stack) for rank, call in calls.items()}
    site, count = Counter(sites.values()).most_common(1)[0]
    if None in sites.values() or 2 * count <= len(sites):
        return set()
    return {rank for rank, one in sites.items() if one != site}


def _out_of_turn(group: ResolvedGroup, lookup: CallLookup, seq: int) -> tuple[int, ...]:
    """The few that make a call of equal sizes, as all members made it before, at another number.

    Counts go ahead of tokens, as many to each: whose tokens meet them is at another call.  Where
    no number had any but those sizes, the few have a size that the program does not have.
    """
    window = range(max(1, seq - COMPARED_EXCHANGES), seq + COMPARED_EXCHANGES + 1)
    calls_at = {
        number: {rank: lookup.collective(rank, group, number) for rank in group.members}
        for number in window
    }
    equal: set[Hashable] = set()
    tokens: set[Hashable] = set()
    before: list[set[Hashable | None]] = []
    for number, calls in calls_at.items():
        sizes = {None if call is None else _own_sizes(call) for call in calls.values()}
        if number < seq and any(call is not None for call in calls.values()):
            before.append(sizes)
        if number < seq and len(sizes) == 1:
            equal |= sizes - {None}
        tokens.update(
            call.arguments.input_sizes
            for call in calls.values()
            if call is not None and _own_sizes(call) is None
        )
    fixed = len(before) >= FIXED_EXCHANGES and before.count(before[0]) == len(before)
    for number, calls in calls_at.items():
        known = {rank: call for rank, call in calls.items() if call is not None}
        if number < seq or len(known) < len(calls):
            continue
        making = {rank for rank, call in known.items() if _own_sizes(call) in equal}
        if 0 < len(making) < len(calls):
            few = min(making, known.keys() - making, key=len)
            if few == making and fixed:
                return ()  # By now the data gives the sizes.
            mine = {call_site(known[rank].stack) for rank in few}
            others = {call_site(call.stack) for rank, call in known.items() if rank not in few}
            # Tokens may be as many as they come to by chance: their line tells, or their sizes.
            apart = (
                fixed or mine.isdisjoint(others) or (mine | others == {None} and not equal & tokens)
            )
            return tuple(sorted(few)) if apart and outvotes(len(calls) - len(few), len(few)) else ()
    return ()


def _own_sizes(call: Call) -> Hashable | None:
    """Sizes of a call that takes as much as it gives; None of another."""
    sizes = call.arguments.input_sizes
    return sizes if sizes and sizes == call.arguments.output_sizes else None


def _unknown_calls(
    group: ResolvedGroup, calls: Mapping[int, Call], seq: int
) -> dict[int, UnknownCall]:
    """Members that may have entered and whose sizes, which could tell who of two is wrong, lack."""
    found: dict[int, UnknownCall] = {}
    for rank in group.members:
        progress = group.progress.get(rank)
        late = progress is not None and progress.has_entered(seq) is False
        if rank not in calls and not late:
            found[rank] = UnknownCall.NO_EVIDENCE
    return found


def _lengths(call: Call, members: int) -> SplitLists | None:
    """Lengths that a call sends to, and takes from, each member; None where that is not known."""
    known = splits_of(call.arguments)
    if known is None:
        inputs, outputs = call.arguments.input_sizes, call.arguments.output_sizes
        known = SplitLists(tuple(map(prod, inputs)), tuple(map(prod, outputs)))
    sent, received = known
    return known if len(sent) == len(received) == members and members > 1 else None


def _mismatched_pairs(members: tuple[int, ...], calls: Mapping[int, Call]) -> list[tuple[int, int]]:
    """Pairs (sender, receiver) of which one sends another amount than the other takes."""
    lengths = {rank: _lengths(call, len(members)) for rank, call in calls.items()}
    pairs = []
    for i, sender in enumerate(members):
        for j, receiver in enumerate(members):
            mine, theirs = lengths.get(sender), lengths.get(receiver)
            if mine is not None and theirs is not None and mine[0][j] != theirs[1][i]:
                pairs.append((sender, receiver))
    return pairs


def _total_differs(members: tuple[int, ...], calls: Mapping[int, Call]) -> bool:
    """True if all send more, or less, than all take together."""
    if len(calls) < len(members):
        return False
    sent = taken = 0
    for call in calls.values():
        if not call.arguments.input_sizes or not call.arguments.output_sizes:
            return False
        sent += sum(prod(shape) for shape in call.arguments.input_sizes)
        taken += sum(prod(shape) for shape in call.arguments.output_sizes)
    return sent != taken
