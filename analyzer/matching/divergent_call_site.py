"""A member that went somewhere it had never been, while its peers went on as always.

One rank evaluates, logs or saves by itself: its operations come from a new place
of the program and meet those of its peers' next step, and from there on no two
operations that used to go together, or are one, meet again.
"""

from __future__ import annotations

from collections import Counter
from itertools import takewhile

from hanglab.analyzer.flight_recorder.columns import ABSENT, Arguments, Entries
from hanglab.analyzer.matching.call_lookup import CallLookup
from hanglab.analyzer.matching.calls import Difference, Divergence
from hanglab.analyzer.matching.group_history import continuation
from hanglab.analyzer.matching.merging import SignatureHistory
from hanglab.analyzer.matching.missing_votes import outvotes
from hanglab.analyzer.matching.sequences import Sequences, calls_under
from hanglab.analyzer.matching.thresholds import COMPARED_HISTORIES


def find_divergent_call_site(
    sequences: Sequences, lookup: CallLookup, before: int
) -> Divergence | None:
    """Calls from another line that end in the difference under ``before``; None without any."""
    members = set(sequences.group.members)
    histories = [h for h in sequences.histories[:COMPARED_HISTORIES] if members & set(h.windows)]
    starts: dict[int, list[SignatureHistory]] = {}
    for changed in histories:
        for steady in histories:
            if changed is steady:
                continue
            seq = _left_at(sequences, changed, steady, before)
            if seq is not None and changed not in starts.setdefault(seq, []):
                starts[seq].append(changed)
    if not starts:
        return None
    seq = min(starts)
    deviating = sorted({r for history in starts[seq] for r in _within(history, seq) & members})
    if len(deviating) > 1 and not outvotes(len(members) - len(deviating), len(deviating)):
        # They are too many to be the exception.
        return None
    other = min(members - {*deviating}, default=deviating[0])
    if _call_alike(lookup, sequences, (deviating[0], other), (seq, before)):
        return None
    calls = calls_under(sequences, lookup, seq, sorted(members), tuple(deviating))
    if not set(deviating) & calls.keys():
        return None
    return Divergence(
        group=sequences.group.group,
        seq=seq,
        difference=Difference.CALL_SITE,
        calls=calls,
        deviating=tuple(deviating),
        candidates=(),
        skipped=False,
        finished=True,
    )


def _within(history: SignatureHistory, seq: int) -> set[int]:
    return {rank for rank, (low, high) in history.windows.items() if low <= seq < high}


def _left_at(
    sequences: Sequences, changed: SignatureHistory, steady: SignatureHistory, before: int
) -> int | None:
    """The number at which ``changed`` left the way that ``steady`` kept to; None if it did not."""
    low = max(changed.base, steady.base)
    high = min(changed.base + len(changed.codes), steady.base + len(steady.codes), before + 1)
    if high <= before:
        return None  # One of them never came to the difference.
    mine = [
        sequences.signature(int(c)) for c in changed.codes[low - changed.base : high - changed.base]
    ]
    others = [
        sequences.signature(int(c)) for c in steady.codes[low - steady.base : high - steady.base]
    ]
    due = next(iter(continuation(others[:-1], 1)), None)
    if due is not None and due != others[-1]:
        return None  # It did not keep to its way either.
    pairs = list(zip(mine, others, strict=False))
    lines = [None if x is None or y is None else (x[-1], y[-1]) for x, y in pairs]
    for place in range(1, len(pairs) - 1):
        now = mine[place]
        if now is None or not now[-1] or now == others[place] or now in mine[:place]:
            continue
        if lines[-1] in lines[place:-1]:
            return None  # Lines that met since, and went on, are no other calls by themselves.
        met = set(pairs[:place])
        # One call on both sides is in step again, wherever they have been in between.
        if any(pair in met or None in pair or pair[0] == pair[1] for pair in pairs[place:]):
            continue
        expected = [continuation(past[:place], 1) for past in (mine, others)]
        if all(next(iter(one), None) == others[place] for one in expected):
            return low + place
    return None


def _call_alike(
    lookup: CallLookup, sequences: Sequences, pair: tuple[int, int], between: tuple[int, int]
) -> bool:
    """True if both of a pair called alike from then on all that used to come back, lines apart.

    Which is no accident where those are several, whatever came behind them: the line is another
    way to the same operations, as of a rank that shadows its peers' once its input has ended
    (``torch.distributed.algorithms.Join``).  A lone evaluation meets the same calls until the
    backward pass alone.
    """
    made = []
    for rank in pair:
        entries = lookup.entries(rank)
        at = [lookup.index_of(rank, sequences.group.group.name, seq) for seq in between]
        if entries is None or ABSENT in at:
            return False
        made.append([_called(entries, rows) for rows in (range(at[0]), range(*at))])
    (_, mine), (before, theirs) = made
    returning = {call for call, count in Counter(before).items() if count > 1}
    alike = [
        one for one, _ in takewhile(lambda two: two[0] == two[1], zip(mine, theirs, strict=False))
    ]
    return len(returning) > 1 and returning <= {*alike}


def _called(entries: Entries, rows: range) -> list[tuple[str, str, Arguments]]:
    """Group, operation and arguments of each call in some rows."""
    return [
        (entries.group_at(row), entries.operation_at(row).op, entries.arguments_at(row))
        for row in rows
    ]
